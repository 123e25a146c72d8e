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

// Config is the address of a server, an account, and the options of a connection.
type Config struct {
	Address  string // host or host:port; the port is 21, or 990 with TLSImplicit. IPv6 addresses with a port are in brackets
	User     string // "" is anonymous
	Password string
	TLS      TLSMode
	// TLSConfig: nil means the system's certificates, and the host of Address.
	TLSConfig *tls.Config
	Timeout   time.Duration // of connecting, of each command that does not wait for a lock, and of a transfer without progress; 0: 30 s

	// JobKey identifies the job (the argument of SITE LOCK AS): at most 128 visible ASCII characters; "": a random
	// one for each acquisition. Two jobs of one account with one key take the lock from each other. A service sets one key for the whole process, such as
	// crypto/rand.Text(): then it adopts its own old lock instead of waiting for the end of that.
	JobKey string
	// Grace is the time from the end of a connection to the end of its locks on ftplockd (SITE LOCK DISCONNECT RELEASE), if the server's rule does
	// not end them earlier. So the lock of a program that was killed ends soon. A program that hangs or is stopped (SIGSTOP) keeps its connection: its lock
	// ends by the rule's max_idle. If the server does not answer, a Lock is lost two seconds, or a fifth of the grace, before that. It is rounded up to
	// seconds. 0: 15 s; negative: as the server's rule.
	Grace time.Duration
	// Poll is the mean pause between two tries on a server where MKD cannot wait. Each pause is a random time between half and one
	// and a half of it. 0: 3 s.
	Poll time.Duration
	// Check is the time between two checks of a held lock. 0: 1 s on ftplockd, and 5 s on other servers; less if the lock's
	// limits are short.
	Check time.Duration

	// DialContext opens the control and data connections. It must return when its context ends. nil: a net.Dialer.
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

// endpoint is a Config with all its defaults.
type endpoint struct {
	Config
	host    string
	tls     *tls.Config   // nil: without
	proxied bool          // the caller has set DialContext
	maxAge  time.Duration // of Options
	note    string        // of Options, as the server accepts it
}

// resolve fills in the defaults.
func (c Config) resolve() (*endpoint, error) {
	e := &endpoint{Config: c, proxied: c.DialContext != nil}
	e.Timeout = cmp.Or(max(c.Timeout, 0), 30*time.Second)
	e.Grace = cmp.Or(c.Grace, 15*time.Second)
	e.Poll = cmp.Or(max(c.Poll, 0), 3*time.Second)
	e.JobKey = cmp.Or(c.JobKey, rand.Text())
	if c.User == "" {
		e.User = "anonymous"
		if c.Password == "" {
			e.Password = "anonymous@"
		}
	}
	if strings.ContainsAny(c.User+c.Password, "\r\n\x00") {
		return nil, fmt.Errorf("%w: a line end in the account or the password", ErrLogin)
	}
	if e.DialContext == nil {
		e.DialContext = (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext
	}
	var err error
	if e.Address, err = c.HostPort(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	e.host, _, _ = net.SplitHostPort(e.Address)
	if c.TLS != TLSOff {
		e.tls = c.config(e.host)
	}
	return e, nil
}

// HostPort returns Address with its port. "::1" and "[::1]" are hosts, "[::1]:21" has a port.
func (c Config) HostPort() (string, error) {
	host, port, err := net.SplitHostPort(c.Address)
	if err != nil {
		if port = "21"; c.TLS == TLSImplicit {
			port = "990"
		}
		if _, err := netip.ParseAddr(c.Address); err == nil {
			host = c.Address
		} else {
			host, _, _ = net.SplitHostPort(c.Address + ":" + port)
		}
	}
	if host == "" || port == "" || strings.ContainsAny(c.Address, "/ \t") {
		return "", fmt.Errorf("%q must be a host or host:port; an IPv6 address with a port stands in brackets", c.Address)
	}
	return net.JoinHostPort(host, port), nil
}

// config returns the configuration of TLS. Control and data connections share one cache of sessions and one name in it, so that data
// connections resume the session of the control connection: vsftpd (require_ssl_reuse) and proftpd require that.
func (c Config) config(host string) *tls.Config {
	t := c.TLSConfig.Clone()
	if t == nil {
		t = &tls.Config{}
	}
	if t.ServerName == "" {
		t.ServerName, _, _ = strings.Cut(host, "%")
	}
	if t.ClientSessionCache == nil {
		t.ClientSessionCache = tls.NewLRUClientSessionCache(4)
	}
	return t
}

// fail returns an ErrUnreachable of the server.
func (e *endpoint) fail(what string, err error) error {
	if err != nil {
		what += plain(err)
	}
	return &causedError{errors.New(e.Address + ": " + what), []error{ErrUnreachable, err}}
}
