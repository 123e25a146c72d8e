package locksmith

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/textproto"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jlaffaye/ftp"
)

// session is one connection that is logged in. Package ftp transfers and lists on it. It has no SITE and ALLO, and does not return the
// text of the replies to USER and MKD. A second textproto.Conn sends these commands between its calls. Each of the two reads exactly the replies to
// its own commands, so both buffers are empty in between. One goroutine at a time may use a session, except for abort.
type session struct {
	*endpoint
	link  *link
	conn  net.Conn // link, or TLS on it
	text  *textproto.Conn
	ftp   *ftp.ServerConn
	feats map[string]string // of FEAT (RFC 2389), in capitals
	home  string            // the directory after login; "" if unknown

	waiting time.Duration // the last value of SITE WAIT

	transfers    context.Context // ends when transfers and listings are aborted; its cause is the reason
	endTransfers context.CancelCauseFunc

	mu   sync.Mutex
	data *link // of the last transfer or listing
}

// connect dials and logs in, within the timeout for each step and until ctx ends.
func connect(ctx context.Context, e *endpoint) (*session, error) {
	dialing, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	conn, err := e.DialContext(dialing, "tcp", e.Address)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, e.fail("", err)
	}
	s := &session{endpoint: e, link: &link{Conn: conn, limit: e.Timeout}, waiting: -1}
	s.conn = s.link
	s.transfers, s.endTransfers = context.WithCancelCause(context.Background())
	stop := context.AfterFunc(ctx, func() { s.link.cut(context.Cause(ctx)) })
	defer stop()
	if err := s.begin(ctx); err != nil {
		s.drop()
		return nil, err
	}
	return s, nil
}

// begin reads the greeting, starts TLS and logs in.
func (s *session) begin(ctx context.Context) error {
	if s.TLS == TLSImplicit {
		if err := s.handshake(); err != nil {
			return err
		}
	}
	s.text = textproto.NewConn(s.conn)
	if _, _, err := s.text.ReadResponse(220); err != nil {
		return s.fail("", err)
	}
	if s.TLS == TLSExplicit {
		r, err := s.ask(ctx, "AUTH TLS")
		if err != nil {
			return err
		}
		if r.code != 234 {
			return fmt.Errorf("%w: %s: the server replied %s to AUTH TLS", ErrTLS, s.Address, r)
		}
		if s.text.R.Buffered() > 0 { // an attacker may have sent it unencrypted: it must not count as a reply under TLS
			return fmt.Errorf("%w: %s: the server sent an unencrypted reply before TLS began", ErrTLS, s.Address)
		}
		if err := s.handshake(); err != nil {
			return err
		}
		s.text = textproto.NewConn(s.conn)
	}
	if err := s.login(ctx); err != nil {
		return err
	}
	return s.prepare(ctx)
}

// handshake begins TLS on the control connection.
func (s *session) handshake() error {
	secure := tls.Client(s.link, s.tls)
	s.conn = secure
	err := secure.Handshake()
	switch {
	case err == nil:
		return nil
	case s.link.err() != nil:
		return s.fail("", err)
	}
	return fmt.Errorf("%w: %s: %s", ErrTLS, s.Address, plain(err))
}

// login sends USER and PASS. Package ftp then sets the type, UTF-8 and the protection of data connections.
func (s *session) login(ctx context.Context) error {
	r, err := s.ask(ctx, "USER "+s.User)
	if err == nil && r.code == 331 {
		r, err = s.ask(ctx, "PASS "+s.Password)
	}
	switch {
	case err != nil:
		return err
	case r.code != 230:
		return fmt.Errorf("%w: %s at %s: the server replied %s", ErrLogin, s.User, s.Address, r)
	}
	tap := &tap{Conn: s.conn, s: s, answer: "220 ready\r\n"}
	options := []ftp.DialOption{ftp.DialWithDialFunc(func(_, address string) (net.Conn, error) {
		if s.ftp == nil {
			return tap, nil
		}
		return s.openData(address)
	})}
	if s.tls != nil {
		options = append(options, ftp.DialWithTLS(s.tls))
	}
	library, err := ftp.Dial(s.Address, options...)
	if err == nil {
		s.ftp = library
		err = library.Login(s.User, s.Password)
	}
	switch {
	case err == nil:
		return nil
	case s.broken() != nil:
		return s.broken()
	case s.tls != nil:
		return fmt.Errorf("%w: %s: %s", ErrTLS, s.Address, plain(err))
	}
	return fmt.Errorf("%w: %s: %s", ErrRefused, s.Address, plain(err))
}

// tap is the control connection for package ftp. It answers the greeting and USER itself, because the session is logged in already.
type tap struct {
	net.Conn
	s      *session
	answer string // the reply to read next; "": read from the server
}

// Read implements net.Conn.
func (t *tap) Read(p []byte) (int, error) {
	if t.answer != "" {
		n := copy(p, t.answer)
		t.answer = t.answer[n:]
		return n, nil
	}
	n, err := t.Conn.Read(p)
	if err != nil {
		err = t.s.lost(err)
	}
	return n, err
}

// Write implements net.Conn. The library writes one command at a time.
func (t *tap) Write(p []byte) (int, error) {
	if strings.HasPrefix(string(p), "USER ") {
		t.answer = "230 in\r\n"
		return len(p), nil
	}
	n, err := t.Conn.Write(p)
	if err != nil {
		err = t.s.lost(err)
	}
	return n, err
}

// RemoteAddr implements net.Conn. The library requires a TCP address; dataHost replaces it.
func (t *tap) RemoteAddr() net.Addr { return &net.TCPAddr{} }

// prepare reads the directory after login and the features. To ftplockd it sends the nonce of the job, and the time from the end of the connection
// to the end of its locks.
func (s *session) prepare(ctx context.Context) error {
	var err error
	if s.home, err = s.ftp.CurrentDir(); err != nil && s.broken() != nil {
		return s.broken()
	}
	r, err := s.ask(ctx, "FEAT")
	if err != nil {
		return err
	}
	s.feats = make(map[string]string)
	for line := range strings.SplitSeq(r.raw, "\n") {
		if name, param, _ := strings.Cut(strings.TrimSpace(line), " "); r.code == 211 {
			s.feats[strings.ToUpper(name)] += param + " "
		}
	}
	if !s.hasFacts() {
		return nil
	}
	err = s.must(ctx, "SITE LOCK AS "+s.Nonce)
	if err == nil && s.Grace > 0 && s.can("SITE", "DISCONNECT") {
		err = s.must(ctx, fmt.Sprintf("SITE LOCK DISCONNECT RELEASE %d", (s.Grace+time.Second-1)/time.Second))
	}
	if err == nil {
		err = s.waitFor(ctx, 0)
	}
	return err
}

// can reports whether FEAT has a word after a verb.
func (s *session) can(verb, word string) bool {
	return slices.Contains(strings.Fields(s.feats[verb]), word)
}

// hasFacts reports whether the server sends the facts of locks, as ftplockd does.
func (s *session) hasFacts() bool { return s.can("SITE", "FACTS") }

// must sends a command, and returns an error if the server refuses it.
func (s *session) must(ctx context.Context, command string) error {
	r, err := s.ask(ctx, command)
	if err == nil && !r.positive() {
		err = fmt.Errorf("%w: %s: the server replied %s", ErrRefused, s.Address, r)
	}
	return err
}

// waitFor sets the time that MKD of a held lock waits.
func (s *session) waitFor(ctx context.Context, d time.Duration) error {
	if !s.can("SITE", "WAIT") || s.waiting == d {
		return nil
	}
	s.waiting = d
	return s.must(ctx, fmt.Sprintf("SITE WAIT %d", d/time.Second))
}

// ask sends a command and returns the reply. The connection ends if ctx ends first, and after a 421 (RFC 959 section 4.2.2).
func (s *session) ask(ctx context.Context, command string) (reply, error) {
	if strings.ContainsAny(command, "\r\n\x00") {
		return reply{}, fmt.Errorf("%w: a line end in %q", ErrRefused, command)
	}
	if err := s.broken(); err != nil {
		return reply{}, err
	}
	stop := context.AfterFunc(ctx, func() { s.link.cut(context.Cause(ctx)) })
	defer stop()
	if err := s.text.PrintfLine("%s", command); err != nil {
		return reply{}, s.lost(err)
	}
	code, text, err := s.text.ReadResponse(0)
	if err == nil && code == 421 {
		err = &textproto.Error{Code: code, Msg: text}
	}
	if err != nil {
		return reply{}, s.lost(err)
	}
	return reply{code, text}, nil
}

// lost ends the connection with an error.
func (s *session) lost(err error) error {
	if !errors.Is(err, ErrUnreachable) {
		err = s.fail("", err)
	}
	s.link.cut(err)
	return err
}

// broken returns the reason of the end of the connection; nil if it has not ended.
func (s *session) broken() error {
	err := s.link.err()
	if err == nil || errors.Is(err, ErrUnreachable) {
		return err
	}
	return s.fail("", err)
}

// abs returns a path in its absolute form, or unchanged if the directory after login is unknown.
func (s *session) abs(p string) string {
	if path.IsAbs(p) || s.home == "" {
		return p
	}
	return path.Join(s.home, p)
}

// leave sends QUIT and closes. It waits for closeTimeout at most.
func (s *session) leave() {
	if s.broken() == nil {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		_, _ = s.ask(ctx, "QUIT")
	}
	s.drop()
}

// drop closes without a command.
func (s *session) drop() {
	s.cut(errClosed)
	_ = s.link.Close()
}

// openData opens a data connection for package ftp.
func (s *session) openData(address string) (net.Conn, error) {
	l := &link{data: true, limit: s.Timeout}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(s.transfers, s.Timeout)
	defer cancel()
	if l.Conn, err = s.DialContext(ctx, "tcp", net.JoinHostPort(s.dataHost(), port)); err != nil {
		return nil, fmt.Errorf("opening the data connection: %w", err)
	}
	s.mu.Lock()
	s.data = l
	if s.transfers.Err() != nil {
		l.cut(context.Cause(s.transfers))
	}
	s.mu.Unlock()
	if s.tls != nil {
		return tls.Client(l, s.tls), nil
	}
	return l, nil
}

// dataHost returns the host for data connections: the address of the control connection, or the name of the host if the caller dials.
func (s *session) dataHost() string {
	a, ok := s.link.RemoteAddr().(*net.TCPAddr)
	if !ok || s.proxied {
		return s.host
	}
	return a.AddrPort().Addr().Unmap().String()
}

// abort ends the running transfer and all later ones. The server gets closeTimeout to reply.
func (s *session) abort(why error) {
	s.cutData(why)
	time.AfterFunc(closeTimeout, func() { s.link.cut(why) })
}

// cut ends the control connection and all data connections.
func (s *session) cut(why error) {
	s.cutData(why)
	s.link.cut(why)
}

// cutData ends the data connection, also while it is opened, and all later ones.
func (s *session) cutData(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endTransfers(why)
	if s.data != nil {
		s.data.cut(why)
	}
}
