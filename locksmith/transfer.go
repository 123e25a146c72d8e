package locksmith

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/textproto"
	"path"
	"strconv"
	"strings"
	"time"
)

// Put uploads a file under the lock: under a temporary name beside it (the name, a random word and ".part") and then renamed, where the
// server does not do that by itself. It fails without a change of the file's content if r fails, has more or fewer bytes than size, or if
// the lock is lost before the rename. size is what r holds, in bytes; below 0 it is not known. It is announced (ALLO) and verified where the
// server can tell.
//
// Where a server does not rename onto a file the old one is deleted first: then there is a moment without any. A temporary file
// is removed when Put fails, unless the connection was lost: then it is left. If the reply to the last rename was lost the error says that
// nobody knows. When ctx ends, the transfer is broken off as soon as r's Read returns.
//
// What the server refused matches ErrRefused.
func (l *Lock) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	ctx, s, done, err := l.transfers(ctx)
	if err != nil {
		return err
	}
	defer done()
	u := &upload{l: l, s: s, name: name, size: size, source: r}
	if s.stages() {
		u.target = name
		err = u.store(ctx)
	} else {
		u.target = name + "." + strings.ToLower(rand.Text()[:10]) + ".part"
		err = u.storeAndRename(ctx)
	}
	if path.Dir(s.abs(name)) == l.path && l.Token() == 0 { // our own writing changed the mark of the directory
		l.kept.looker = nil
		_ = l.takeMark(context.WithoutCancel(ctx), s)
	}
	return l.noted(err)
}

// noted ends the lock if the error says that it is lost.
func (l *Lock) noted(err error) error {
	if errors.Is(err, ErrLost) {
		l.finish(err)
	}
	return err
}

// transfers takes the turn for a transfer, with a connection that works and a lock that stands. The context ends with the lock, too.
func (l *Lock) transfers(ctx context.Context) (context.Context, *session, func(), error) {
	s, err := l.acquire(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	err = s.broken()
	if err == nil {
		err = l.check(context.WithoutCancel(ctx), s)
	}
	if err != nil && !errors.Is(err, ErrLost) {
		var again *session
		if again, err = l.regain(ctx); again != nil {
			s.drop()
			s = again
		} else if err == nil {
			err = context.Cause(ctx)
		}
	}
	if err != nil {
		l.hand(s)
		return nil, nil, nil, l.noted(err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.life, func() { cancel(l.gone()) })
	return ctx, s, func() {
		stop()
		cancel(nil)
		l.hand(s)
	}, nil
}

// upload is one Put.
type upload struct {
	l      *Lock
	s      *session
	name   string // of the file
	target string // what is stored: the file, or a temporary one
	size   int64
	source io.Reader

	ctx   context.Context
	began time.Time
	sent  int64
	err   error // of the source
}

var _ io.Reader = (*upload)(nil)

// Read is what the library reads the content from. Whatever ends it early resets the data connection: the library closes it
// as if the file were complete.
func (u *upload) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, u.breakOff(context.Cause(u.ctx))
	}
	n, err := u.source.Read(p)
	u.sent += int64(n)
	switch {
	case u.size >= 0 && u.sent > u.size:
		return 0, u.breakOff(fmt.Errorf("%s: there are more than the %d bytes that were announced", u.name, u.size))
	case err == io.EOF:
		return n, u.end()
	case err != nil:
		return n, u.breakOff(err)
	}
	return n, nil
}

func (u *upload) breakOff(why error) error {
	if u.err == nil {
		u.err = why
	}
	u.s.secureData()
	u.s.interrupt(why)
	return why
}

// end looks at everything once more before the server takes the file for complete.
func (u *upload) end() error {
	if u.size >= 0 && u.sent < u.size {
		return u.breakOff(fmt.Errorf("%s: there are %d bytes of the %d that were announced", u.name, u.sent, u.size))
	}
	if u.ctx.Err() == nil && u.target == u.name && time.Since(u.began) > u.l.o.Check { // no rename follows that could wait for it
		if err := u.l.glance(u.ctx); err != nil {
			return u.breakOff(err)
		}
	}
	if u.ctx.Err() != nil {
		return u.breakOff(context.Cause(u.ctx))
	}
	return io.EOF
}

// store is ALLO and STOR.
func (u *upload) store(ctx context.Context) error {
	if u.size >= 0 {
		r, err := u.s.ask(ctx, "ALLO "+strconv.FormatInt(u.size, 10))
		if err != nil {
			return fmt.Errorf("%s: %w", u.name, err)
		}
		if r.code == 452 || r.code == 552 { // others say that they do not need it, or do not know it
			return fmt.Errorf("%w: %s: the server said %s", ErrRefused, u.name, r)
		}
	}
	u.ctx, u.began = ctx, time.Now()
	err := u.s.library(ctx, func() error { return u.s.ftp.Stor(u.target, u) })
	if u.err != nil {
		return u.err
	}
	return u.s.transferred(u.name, err)
}

// transferred puts an error of a transfer on one line.
func (s *session) transferred(name string, err error) error {
	var said *textproto.Error
	switch {
	case err == nil:
		return nil
	case s.broken() != nil:
		return fmt.Errorf("%s: %w", name, s.broken())
	case errors.As(err, &said) && said.Code >= 500:
		return fmt.Errorf("%w: %s: the server said %d %s", ErrRefused, name, said.Code, said.Msg)
	case errors.As(err, &said):
		return fmt.Errorf("%s: the server said %d %s", name, said.Code, said.Msg)
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrLost):
		return err
	}
	return fmt.Errorf("%s: %s", name, plain(err))
}

// storeAndRename makes of any server one that publishes what is complete, by one rename.
func (u *upload) storeAndRename(ctx context.Context) error {
	err := u.store(ctx)
	ctx = context.WithoutCancel(ctx) // what comes now is short, and its end would cost the connection
	if err == nil {
		err = u.verify(ctx)
	}
	left := false
	if err == nil {
		left, err = u.publish(ctx)
	}
	if err != nil && !left && u.s.broken() == nil {
		if r, derr := u.s.ask(ctx, "DELE "+u.target); derr == nil && !r.good() && u.sent > 0 {
			err = fmt.Errorf("%w (and %s is left: the server said %s)", err, u.target, r)
		}
	}
	return err
}

// verify compares the length, where the server tells it (RFC 3659 section 4; the type is binary), and looks whether the lock stands.
func (u *upload) verify(ctx context.Context) error {
	n, err := u.s.size(ctx, u.target)
	if err != nil {
		return fmt.Errorf("%s: %w", u.name, err)
	}
	if n >= 0 && n != u.sent {
		return fmt.Errorf("%s: %d bytes were sent and %d arrived", u.name, u.sent, n)
	}
	return u.l.check(ctx, u.s)
}

// size is -1 if the server does not tell.
func (s *session) size(ctx context.Context, name string) (int64, error) {
	r, err := s.ask(ctx, "SIZE "+name)
	if err != nil || r.code != 213 {
		return -1, err
	}
	n, perr := strconv.ParseInt(strings.TrimSpace(r.text()), 10, 64)
	if perr != nil {
		return -1, nil
	}
	return n, nil
}

// publish renames, and reports whether the temporary file is to be left.
func (u *upload) publish(ctx context.Context) (left bool, err error) {
	r, err := u.rename(ctx)
	if err != nil || r.good() {
		return false, err
	}
	gone, err := u.s.ask(ctx, "DELE "+u.name)
	if err != nil {
		return false, fmt.Errorf("%s: %w", u.name, err)
	}
	if !gone.good() { // there was no file in the way
		return false, fmt.Errorf("%w: %s: the server said %s to RNTO", ErrRefused, u.name, r)
	}
	if r, err = u.rename(ctx); err == nil && !r.good() {
		err = fmt.Errorf("%w: %s: the server said %s to RNTO; the file is there as %s", ErrRefused, u.name, r, u.target)
	}
	return true, err
}

// rename is RNFR and RNTO. The reply is that of the first one if that was refused.
func (u *upload) rename(ctx context.Context) (reply, error) {
	from, err := u.s.ask(ctx, "RNFR "+u.target)
	if err != nil || from.code != 350 {
		if err != nil {
			err = fmt.Errorf("%s: %w", u.name, err)
		}
		return from, err
	}
	to, err := u.s.ask(ctx, "RNTO "+u.name)
	if err != nil {
		err = fmt.Errorf("%s: nobody knows whether the file is in place: %w", u.name, err)
	}
	return to, err
}

// Get downloads a file under the lock and returns how many bytes were written to w. A download that was cut off is an error: it matches
// io.ErrUnexpectedEOF where the server tells the length (SIZE) or TLS tells the end. When ctx ends, the transfer is broken off as soon as
// w's Write returns.
func (l *Lock) Get(ctx context.Context, name string, w io.Writer) (int64, error) {
	ctx, s, done, err := l.transfers(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
	size, err := s.size(ctx, name)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	d := &download{s: s, name: name, size: size, to: w}
	err = d.run(ctx)
	return d.written, err
}

// download is one Get.
type download struct {
	s       *session
	name    string
	size    int64 // -1: not known
	to      io.Writer
	written int64
	err     error // of the writer
}

var _ io.Writer = (*download)(nil)

// Write counts, and tells an error of the writer from one of the connection.
func (d *download) Write(p []byte) (int, error) {
	n, err := d.to.Write(p)
	d.written += int64(n)
	if d.err == nil {
		d.err = err
	}
	return n, err
}

func (d *download) run(ctx context.Context) error {
	var reading, closing error
	err := d.s.library(ctx, func() error {
		r, err := d.s.ftp.Retr(d.name)
		if err != nil {
			return err
		}
		if _, reading = io.Copy(d, r); reading != nil && !errors.Is(reading, io.ErrUnexpectedEOF) {
			d.s.interrupt(reading)
		}
		closing = r.Close()
		return errors.Join(reading, closing)
	})
	cut := fmt.Errorf("%s: cut off: %d bytes of %d: %w", d.name, d.written, d.size, io.ErrUnexpectedEOF)
	switch {
	case d.err != nil:
		return d.err
	case ctx.Err() != nil && err != nil:
		return context.Cause(ctx)
	case err != nil && closing == nil && errors.Is(reading, io.ErrUnexpectedEOF):
		if d.written != d.size { // some servers end TLS without a word: where the length is right that does no harm
			return cut
		}
		return nil
	case err != nil:
		return d.s.transferred(d.name, err)
	case d.size >= 0 && d.written != d.size:
		return cut
	}
	return nil
}
