package locksmith

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"
)

// Server is the address of a server, an account, and the options of a connection.
type Server struct {
	Address  string // host or host:port; the port is 21, or 990 with TLSImplicit. IPv6 addresses with a port are in brackets
	User     string // "" is anonymous
	Password string
	TLS      TLSMode
	Config   *tls.Config   // of TLS; nil: the system's certificates, the host of Address
	Timeout  time.Duration // of connecting, of each command that does not wait for a lock, and of a transfer without progress; 0: 30 s

	// Nonce is the word that identifies the job (SITE LOCK AS): at most 128 visible ASCII characters; "": a random
	// one. Two jobs of one account with one nonce take the lock from each other.
	Nonce string
	// Grace is the time from the end of a connection to the end of its locks on ftplockd (SITE LOCK DISCONNECT RELEASE), if the server's rule does
	// not end them earlier. So the lock of a program that was killed ends soon. If the server does not answer, a Lock is lost two seconds, or a
	// fifth of the grace, before that. It is rounded up to seconds. 0: 15 s; negative: as the server's rule.
	Grace time.Duration
	// Poll is the mean pause between two tries on a server where MKD cannot wait. Each pause is a random time between half and one
	// and a half of it. 0: 3 s.
	Poll time.Duration
	// Check is the time between two checks of a held lock. 0: 1 s on ftplockd, and 5 s on other servers; less if the lock's
	// limits are short.
	Check time.Duration

	// DialContext opens the control and data connections. nil: a net.Dialer.
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)
}

// TLSMode is the protection of the control connection and the data connections.
type TLSMode int

// The modes of TLS (RFC 4217).
const (
	TLSOff      TLSMode = iota
	TLSExplicit         // AUTH TLS; a server without it is an error
	TLSImplicit         // from the first byte on
)

// endpoint is a Server with all its defaults.
type endpoint struct {
	Server
	host    string
	tls     *tls.Config // nil: without
	proxied bool        // the caller has set DialContext
}

// resolve fills in the defaults.
func (s Server) resolve() (*endpoint, error) {
	e := &endpoint{Server: s, proxied: s.DialContext != nil}
	e.Timeout = cmp.Or(max(s.Timeout, 0), 30*time.Second)
	e.Grace = cmp.Or(s.Grace, 15*time.Second)
	e.Poll = cmp.Or(max(s.Poll, 0), 3*time.Second)
	e.Nonce = cmp.Or(s.Nonce, rand.Text())
	if s.User == "" {
		e.User = "anonymous"
		if s.Password == "" {
			e.Password = "anonymous@"
		}
	}
	if strings.ContainsAny(s.User+s.Password, "\r\n\x00") {
		return nil, fmt.Errorf("%w: a line end in the account or the password", ErrLogin)
	}
	if e.DialContext == nil {
		e.DialContext = (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext
	}
	var err error
	if e.Address, err = s.HostPort(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	e.host, _, _ = net.SplitHostPort(e.Address)
	if s.TLS != TLSOff {
		e.tls = s.config(e.host)
	}
	return e, nil
}

// HostPort returns Address with its port. "::1" and "[::1]" are hosts, "[::1]:21" has a port.
func (s Server) HostPort() (string, error) {
	host, port, err := net.SplitHostPort(s.Address)
	if err != nil {
		if port = "21"; s.TLS == TLSImplicit {
			port = "990"
		}
		if _, err := netip.ParseAddr(s.Address); err == nil {
			host = s.Address
		} else {
			host, _, _ = net.SplitHostPort(s.Address + ":" + port)
		}
	}
	if host == "" || port == "" || strings.ContainsAny(s.Address, "/ \t") {
		return "", fmt.Errorf("%q must be a host or host:port; an IPv6 address with a port stands in brackets", s.Address)
	}
	return net.JoinHostPort(host, port), nil
}

// config returns the configuration of TLS. Control and data connections share one cache of sessions and one name in it, so that data
// connections resume the session of the control connection: vsftpd (require_ssl_reuse) and proftpd require that.
func (s Server) config(host string) *tls.Config {
	c := s.Config.Clone()
	if c == nil {
		c = &tls.Config{}
	}
	if c.ServerName == "" {
		c.ServerName, _, _ = strings.Cut(host, "%")
	}
	if c.ClientSessionCache == nil {
		c.ClientSessionCache = tls.NewLRUClientSessionCache(4)
	}
	return c
}

// fail returns an ErrUnreachable of the server.
func (e *endpoint) fail(what string, err error) error {
	if err != nil {
		what += plain(err)
	}
	return &causedError{errors.New(e.Address + ": " + what), []error{ErrUnreachable, err}}
}
