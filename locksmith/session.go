package locksmith

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jlaffaye/ftp"
)

// session is one connection that is logged in. One goroutine at a time may use it, except for abort.
type session struct {
	*endpoint
	control *timedConn
	conn    net.Conn // control, or TLS on it
	text    *textproto.Conn
	ftp     *ftp.ServerConn
	feats   map[string]string // of FEAT (RFC 2389), in capitals
	home    string            // the directory after login; "" if unknown

	waiting time.Duration // the last value of SITE WAIT

	transfers    context.Context // ends when transfers and listings are aborted; its cause is the reason
	endTransfers context.CancelCauseFunc

	mu   sync.Mutex
	data *timedConn // of the last transfer or listing
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
	s := &session{endpoint: e, control: &timedConn{Conn: conn, limit: e.Timeout}, waiting: -1}
	s.conn = s.control
	s.transfers, s.endTransfers = context.WithCancelCause(context.Background())
	stop := context.AfterFunc(ctx, func() { s.lost(context.Cause(ctx)) })
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
		return s.lost(err)
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
	secure := tls.Client(s.control, s.tls)
	s.conn = secure
	err := secure.Handshake()
	switch errno := syscall.Errno(0); {
	case err == nil:
		return nil
	case s.broken() != nil:
		return s.broken()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &errno):
		return s.lost(err) // the server restarts, or is silent: that says nothing about its certificate
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
	if err := s.startLibrary(); err == nil || s.broken() != nil {
		return s.broken()
	} else if s.tls != nil {
		return fmt.Errorf("%w: %s: %s", ErrTLS, s.Address, plain(err))
	} else {
		return fmt.Errorf("%w: %s: %s", ErrRefused, s.Address, plain(err))
	}
}

// prepare reads the directory after login and the features. To ftplockd it sends the JobKey, and the limits of the locks of this connection.
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
	if s.maxAge > 0 && s.lacks().Has(FeatureMaxAge) {
		return Unsupported{FeatureMaxAge}
	}
	if !s.hasFacts() {
		return nil
	}
	err = s.must(ctx, "SITE LOCK AS "+s.JobKey)
	if err == nil && s.Grace > 0 && s.can("SITE", "DISCONNECT") {
		err = s.must(ctx, fmt.Sprintf("SITE LOCK DISCONNECT RELEASE %d", seconds(s.Grace)))
	}
	if err == nil && s.maxAge > 0 {
		err = s.must(ctx, fmt.Sprintf("SITE LOCK AGE %d", seconds(s.maxAge)))
	}
	if err == nil && s.note != "" && s.can("SITE", "NOTE") {
		err = s.must(ctx, "SITE LOCK NOTE "+s.note)
	}
	if err == nil {
		err = s.waitFor(ctx, 0)
	}
	return err
}

// maxNote is the length of the longest note that the server accepts, in bytes.
const maxNote = 80

// cleanNote returns a note as the server accepts it.
func cleanNote(note string) string {
	note = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return '?'
		}
		return r
	}, strings.Join(strings.Fields(note), " "))
	n := min(len(note), maxNote)
	for n < len(note) && !utf8.RuneStart(note[n]) {
		n--
	}
	return strings.TrimRight(note[:n], " ")
}

// seconds rounds a duration up to seconds.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// can reports whether FEAT has a word after a verb.
func (s *session) can(verb, word string) bool {
	return slices.Contains(strings.Fields(s.feats[verb]), word)
}

// hasFacts reports whether the server sends the facts of locks, as ftplockd does.
func (s *session) hasFacts() bool { return s.can("SITE", "FACTS") }

// lacks returns the features that the server does not have.
func (s *session) lacks() (u Unsupported) {
	if !s.hasFacts() {
		u = Unsupported{FeatureLease, FeatureTokens, FeatureRelease, FeatureMaxAge, FeatureShared}
	}
	if !s.hasFacts() || !s.can("SITE", "DISCONNECT") {
		u = append(u, FeatureGrace)
	}
	if !s.can("SITE", "WAIT") {
		u = append(u, FeatureQueue)
	}
	if !s.can("STOR", "STAGED") {
		u = append(u, FeatureStaged)
	}
	if !s.hasFacts() || !s.can("SITE", "NOTE") {
		u = append(u, FeatureNote)
	}
	return u
}

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
	stop := context.AfterFunc(ctx, func() { s.lost(context.Cause(ctx)) })
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
	s.control.cut(err)
	return err
}

// broken returns the reason of the end of the connection, which matches ErrUnreachable; nil if it has not ended.
func (s *session) broken() error { return s.control.err() }

// abs returns a path in its absolute form, or unchanged if the directory after login is unknown.
func (s *session) abs(p string) string {
	if path.IsAbs(p) || s.home == "" {
		return p
	}
	return path.Join(s.home, p)
}

// leave sends QUIT and closes. It waits for closeTimeout at most, and for afterEnd after the end of ctx.
func (s *session) leave(ctx context.Context) {
	late, stop := linger(ctx, afterEnd)
	defer stop()
	s.leaveIn(late)
}

// leaveIn is leave that ends with ctx.
func (s *session) leaveIn(ctx context.Context) {
	if s.broken() == nil {
		limited, cancel := context.WithTimeout(ctx, closeTimeout)
		defer cancel()
		_, _ = s.ask(limited, "QUIT")
	}
	s.drop()
}

// part releases what this connection holds, without waiting for replies. Another connection of the job may hold the lock by now: a new job key makes RMD
// release no hold but that of this connection. part returns when the commands are sent; a goroutine closes the connection when the server has done so, or
// after closeTimeout. The caller is the only user of the session.
func (s *session) part(name string) {
	s.cutData(errClosed)
	s.control.reopen(closeTimeout)
	sent := make(chan struct{})
	go func() {
		defer s.control.Close()
		_, err := fmt.Fprintf(s.conn, "SITE LOCK AS %s\r\nRMD %s\r\nQUIT\r\n", rand.Text(), name)
		if close(sent); err == nil {
			_, _ = io.Copy(io.Discard, s.control.Conn) // closing a connection with unread bytes resets it
		}
	}()
	select {
	case <-sent: // the program may end now
	case <-time.After(afterEnd):
	}
}

// drop closes without a command.
func (s *session) drop() {
	s.cut(errClosed)
	_ = s.control.Close()
}

// cut ends the control connection and all data connections.
func (s *session) cut(why error) {
	s.cutData(why)
	s.lost(why)
}

// status requests the facts of a lock.
func (s *session) status(ctx context.Context, p string) (Status, error) {
	if !s.hasFacts() {
		got, err := s.describe(ctx, p, "")
		return Status{Path: s.abs(p), Held: got.exists, Unsupported: s.lacks(), busy: got.exists, since: got.since}, err
	}
	r, err := s.ask(ctx, "SITE LOCK INFO "+p)
	if err == nil && r.transient() { // the server cannot prove at the moment that it is active
		err = fmt.Errorf("%w: %s", ErrUnknown, r.text())
	}
	i := newStatus(s.abs(p), r)
	i.Unsupported = s.lacks()
	return i, err
}

// linger returns a context that ends d after ctx.
func linger(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	late, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			cancel(ended(ctx))
		case <-late.Done():
		}
	})
	return late, func() {
		stop()
		cancel(nil)
	}
}
