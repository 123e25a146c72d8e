package locksmith

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jlaffaye/ftp"
)

// session is one connection that is logged in. It belongs to one goroutine at a time, but for cut.
type session struct {
	*endpoint
	*wire
	ftp    *ftp.ServerConn
	active *active           // nil: passive mode
	feats  map[string]string // of FEAT (RFC 2389), in capitals
	home   string            // where it is after login; "": the server does not say

	waits   bool // it knows SITE WAIT
	waiting int  // seconds that SITE WAIT said last
	nonce   bool // it knows us by our nonce

	dataMu  sync.Mutex
	data    *dataConn // of the transfer that is under way, or the last one
	stopped error     // why transfers are aborted; nil: they are not
}

// connect dials and logs in, within the timeout for each step and until ctx ends.
func connect(ctx context.Context, e *endpoint) (*session, error) {
	dialing, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	conn, err := e.reach(dialing)
	if err != nil {
		return nil, err
	}
	s := &session{endpoint: e, wire: &wire{conn: conn, timeout: e.Timeout}}
	stop := context.AfterFunc(ctx, func() { s.cut(context.Cause(ctx)) })
	err = s.begin(dialing, ctx)
	if stop(); err != nil {
		_ = s.wire.Close()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	if ctx.Err() != nil {
		_ = s.wire.Close()
		return nil, context.Cause(ctx)
	}
	return s, nil
}

func (s *session) begin(dialing, ctx context.Context) error {
	if s.TLS == TLSImplicit {
		if err := s.handshake(dialing, s.wire); err != nil {
			return err
		}
	}
	greeting, err := s.greeted()
	if err != nil {
		return err
	}
	if s.TLS == TLSExplicit {
		if err := s.startTLS(ctx); err != nil {
			return err
		}
	}
	if err := s.login(greeting); err != nil {
		return err
	}
	return s.settle(ctx)
}

// greeted reads the greeting. A 120 says that it takes a while (RFC 959 section 5.4).
func (s *session) greeted() (reply, error) {
	for {
		r, err := s.await(context.Background(), 0)
		switch {
		case err != nil:
			return reply{}, fmt.Errorf("%w: %s: %s", ErrUnreachable, s.Address, err)
		case r.code == 220:
			return r, nil
		case r.code >= 200:
			return reply{}, fmt.Errorf("%w: %s: the server said %s", ErrUnreachable, s.Address, r)
		}
	}
}

// startTLS is AUTH TLS (RFC 4217 section 4).
func (s *session) startTLS(ctx context.Context) error {
	r, err := s.ask(ctx, "AUTH TLS")
	if err != nil {
		return err
	}
	if r.code != 234 {
		return fmt.Errorf("%w: %s: the server said %s to AUTH TLS", ErrTLS, s.Address, r)
	}
	return s.handshake(ctx, s.wire)
}

// login leaves USER, PASS, the type, UTF-8 and the protection of data connections to the library.
func (s *session) login(greeting reply) error {
	s.unread(greeting)
	if s.Active {
		s.active = &active{w: s.wire}
	}
	options := []ftp.DialOption{ftp.DialWithDialFunc(s.connection())}
	if s.endpoint.tls != nil {
		options = append(options, ftp.DialWithTLS(s.endpoint.tls))
	}
	library, err := ftp.Dial(s.Address, options...)
	if err == nil {
		s.ftp = library
		err = library.Login(s.User, s.Password)
	}
	if err == nil {
		if s.active != nil {
			s.instead = s.active.answer
		}
		return nil
	}
	return s.notLoggedIn(err)
}

// connection is what the library dials with: first it gets the control connection, then data connections.
func (s *session) connection() func(network, address string) (net.Conn, error) {
	control := true
	return func(network, address string) (net.Conn, error) {
		if control {
			control = false
			return s.wire, nil
		}
		d, err := s.openData(network, address)
		if err != nil {
			return nil, err
		}
		s.setData(d)
		return d, nil
	}
}

func (s *session) openData(network, address string) (*dataConn, error) {
	if s.active != nil {
		return s.active.accept(s.endpoint)
	}
	host, _, err := net.SplitHostPort(address)
	remote, ok := s.RemoteAddr().(*net.TCPAddr)
	if err == nil && ok && remote.Zone != "" && host == remote.IP.String() { // the library drops the zone
		address = net.JoinHostPort(host+"%"+remote.Zone, portOf(address))
	}
	return s.passive(network, address)
}

// notLoggedIn says why, by the last reply that the library saw: its own errors often lack the code.
func (s *session) notLoggedIn(err error) error {
	last := s.last
	switch {
	case s.broken() != nil:
		return fmt.Errorf("%w: %s: %s", ErrUnreachable, s.Address, s.broken())
	case last.code == 421:
		return fmt.Errorf("%w: %s: the server said %s", ErrUnreachable, s.Address, last)
	case s.verb == "PBSZ" || s.verb == "PROT":
		return fmt.Errorf("%w: %s: the server said %s to %s", ErrTLS, s.Address, last, s.verb)
	case s.verb == "USER" || s.verb == "PASS":
		return fmt.Errorf("%w: %s at %s: the server said %s", ErrLogin, s.User, s.Address, last)
	}
	return fmt.Errorf("%w: %s: %s", ErrRefused, s.Address, plain(err))
}

// settle goes to the directory, and learns what the server can.
func (s *session) settle(ctx context.Context) error {
	if s.Dir != "" {
		r, err := s.ask(ctx, "CWD "+s.Dir)
		if err != nil {
			return err
		}
		if !r.good() {
			return fmt.Errorf("%w: %s: the server said %s", ErrRefused, s.Dir, r)
		}
	}
	r, err := s.ask(ctx, "PWD")
	if err != nil {
		return err
	}
	if r.code == 257 {
		s.home = r.quotedName()
	}
	return s.learn(ctx)
}

// learn asks for FEAT.
func (s *session) learn(ctx context.Context) error {
	r, err := s.ask(ctx, "FEAT")
	if err != nil {
		return err
	}
	s.feats = make(map[string]string)
	if r.code == 211 {
		for _, line := range r.body() {
			name, param, _ := strings.Cut(line, " ")
			s.feats[strings.ToUpper(name)] += param + " "
		}
	}
	return nil
}

// stages reports whether uploads are published by the server when they are complete, and not before.
func (s *session) stages() bool {
	return slices.Contains(strings.Fields(s.feats["STOR"]), "STAGED")
}

// knowsLocks reports whether FEAT says that it is ftplockd.
func (s *session) knowsLocks() bool {
	return slices.Contains(strings.Fields(s.feats["SITE"]), "LOCK")
}

// identify tells the server who we are beyond this connection, and finds out whether it can let MKD wait. A server that
// does not know these words says so (RFC 959: 500, 501, 502, 504).
func (s *session) identify(ctx context.Context, nonce string) error {
	as, err := s.ask(ctx, "SITE LOCK AS "+nonce)
	if err != nil {
		return err
	}
	s.nonce = as.code == 200
	if !s.nonce {
		return nil
	}
	wait, err := s.ask(ctx, "SITE WAIT 0")
	if err != nil {
		return err
	}
	s.waits = wait.code == 200
	return nil
}

// waitFor has MKD on a held lock wait for so many seconds.
func (s *session) waitFor(ctx context.Context, seconds int) error {
	if !s.waits || s.waiting == seconds {
		return nil
	}
	r, err := s.ask(ctx, fmt.Sprintf("SITE WAIT %d", seconds))
	if err != nil {
		return err
	}
	if r.code != 200 {
		s.waits = false
	}
	s.waiting = seconds
	return nil
}

// abs is the absolute form of a path, or the path itself if the server does not tell where we are.
func (s *session) abs(p string) string {
	if path.IsAbs(p) || s.home == "" {
		return p
	}
	return path.Join(s.home, p)
}

// leave says QUIT and closes. A server that does not answer is not waited for long.
func (s *session) leave(ctx context.Context) {
	if s.broken() == nil && ctx.Err() == nil {
		s.hurry(min(s.Timeout, 2*time.Second))
		_, _ = s.ask(ctx, "QUIT")
	}
	_ = s.wire.Close()
}

// drop closes without a word.
func (s *session) drop() { _ = s.wire.Close() }

func (s *session) setData(d *dataConn) {
	s.dataMu.Lock()
	defer s.dataMu.Unlock()
	s.data = d
	if s.stopped != nil {
		d.abort(s.stopped)
	}
}

// patience is how long a transfer that is broken off has to come to its reply.
const patience = 5 * time.Second

// library runs a call of the library that transfers. When ctx ends, the data connection is reset and the server has
// some time to say that it has noticed; only if it does not, the control connection is lost as well.
func (s *session) library(ctx context.Context, call func() error) error {
	if err := s.broken(); err != nil {
		return err
	}
	s.interrupt(nil)
	fired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(fired)
		s.hurry(min(s.Timeout, patience))
		s.interrupt(context.Cause(ctx))
	})
	err := call()
	if !stop() {
		<-fired
	}
	s.hurry(0)
	switch {
	case err != nil && s.broken() == nil && s.last.code == 421:
		return s.fail("the server said", errors.New(s.last.String()))
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return err
}

// interrupt aborts the transfer that is under way, and any that is begun before it is called with nil.
func (s *session) interrupt(why error) {
	s.dataMu.Lock()
	defer s.dataMu.Unlock()
	s.stopped = why
	if why == nil {
		s.data = nil
	} else if s.data != nil {
		s.data.abort(why)
	}
}

// secureData begins TLS on the data connection, if it is to have it, before it is reset: vsftpd and pure-ftpd end the whole session, on
// which the lock hangs, when that fails.
func (s *session) secureData() {
	s.dataMu.Lock()
	d := s.data
	s.dataMu.Unlock()
	if d != nil && d.tls != nil {
		_ = d.Handshake()
	}
}
