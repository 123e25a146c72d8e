package locksmith

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// Server says where the locks are and who asks for them.
type Server struct {
	Address  string // host or host:port; the port is 21, or 990 with TLSImplicit. IPv6 addresses with a port are in brackets
	User     string // "" is anonymous
	Password string
	TLS      TLSMode
	Config   *tls.Config   // of TLS; nil: the system's certificates, the host of Address
	Active   bool          // PORT and EPRT instead of PASV and EPSV
	Timeout  time.Duration // of connecting, of each command that does not wait for a lock, and of a transfer that stands still; 0: 30 s
	Dir      string        // changed to after login; "": where the server puts the account

	dial dialer // of tests; nil: the network
}

// TLSMode is how the control connection is protected; data connections follow it.
type TLSMode int

// The modes of TLS (RFC 4217).
const (
	TLSOff      TLSMode = iota
	TLSExplicit         // AUTH TLS; a server that does not know it is an error
	TLSImplicit         // from the first byte on
)

type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// endpoint is a Server with all its defaults.
type endpoint struct {
	Server
	host string
	tls  *tls.Config // nil: without
}

// resolve fills in the defaults.
func (s Server) resolve() (*endpoint, error) {
	e := &endpoint{Server: s}
	if s.Timeout <= 0 {
		e.Timeout = 30 * time.Second
	}
	if s.User == "" {
		e.User = "anonymous"
		if s.Password == "" {
			e.Password = "anonymous@"
		}
	}
	if strings.ContainsAny(s.User+s.Password+s.Dir, "\r\n\x00") {
		return nil, fmt.Errorf("%w: a line end in the account, the password or the directory", ErrLogin)
	}
	if e.dial == nil {
		e.dial = (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext
	}
	port := "21"
	if s.TLS == TLSImplicit {
		port = "990"
	}
	var err error
	if e.host, port, err = hostPort(s.Address, port); err != nil {
		return nil, err
	}
	e.Address = net.JoinHostPort(e.host, port)
	e.tls = s.config(e.host)
	return e, nil
}

// hostPort takes an address apart. "::1" is a host, "[::1]" too, "[::1]:21" has a port.
func hostPort(address, port string) (string, string, error) {
	host := address
	if h, p, err := net.SplitHostPort(address); err == nil {
		host, port = h, p
	} else if strings.Count(address, ":") == 1 || strings.HasPrefix(address, "[") && !strings.HasSuffix(address, "]") {
		return "", "", fmt.Errorf("%w: %q is not host or host:port", ErrUnreachable, address)
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if host == "" || port == "" {
		return "", "", fmt.Errorf("%w: %q is not host or host:port", ErrUnreachable, address)
	}
	return host, port, nil
}

// config is the configuration of TLS. Control and data connections have one cache of sessions and one name in it, so that data
// connections resume the session of the control connection, on which vsftpd (require_ssl_reuse) and proftpd insist. Go resumes by
// session tickets only: a server that has switched these off and resumes by session ids (RFC 5246 section 7.3) cannot be
// satisfied.
func (s Server) config(host string) *tls.Config {
	if s.TLS == TLSOff {
		return nil
	}
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

// reach makes the TCP connection, with TLS on it if that comes first.
func (e *endpoint) reach(ctx context.Context) (net.Conn, error) {
	conn, err := e.dial(ctx, "tcp", e.Address)
	if err != nil {
		return nil, e.unreachable(ctx, err)
	}
	return conn, nil
}

func (e *endpoint) unreachable(ctx context.Context, err error) error {
	var dns *net.DNSError
	var op *net.OpError
	text := plain(err)
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return context.Cause(ctx)
	case errors.As(err, &dns) && dns.IsNotFound:
		text = "unknown host"
	case errors.Is(err, context.DeadlineExceeded):
		text = "no answer in time"
	case errors.As(err, &op):
		text = plain(op.Err)
	}
	return &unreachableError{text: fmt.Sprintf("%v: %s: %s", ErrUnreachable, e.Address, text), cause: err}
}

// unreachableError is ErrUnreachable in one short line; what the system said (*net.DNSError, *net.OpError) is in its chain.
type unreachableError struct {
	text  string
	cause error
}

func (e *unreachableError) Error() string   { return e.text }
func (e *unreachableError) Unwrap() []error { return []error{ErrUnreachable, e.cause} }

// handshake begins TLS on the control connection.
func (e *endpoint) handshake(ctx context.Context, w *wire) error {
	if len(w.buf) > 0 { // sent in the clear before the handshake, by whomever: it must not be taken for what comes under TLS
		return fmt.Errorf("%w: %s: the server said something before TLS began", ErrTLS, e.Address)
	}
	var secure *tls.Conn
	w.upgrade(func(c net.Conn) net.Conn {
		secure = tls.Client(c, e.tls)
		return secure
	})
	if _, err := w.arm(e.Timeout); err != nil {
		return err
	}
	if err := secure.HandshakeContext(ctx); err != nil {
		if ctx.Err() != nil {
			return e.unreachable(ctx, ctx.Err())
		}
		return fmt.Errorf("%w: %s: %s", ErrTLS, e.Address, plain(err))
	}
	return nil
}
