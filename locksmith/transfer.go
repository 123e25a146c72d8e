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
)

// Put uploads a file under the lock. Others see the old file or the new one: where the server does not see to that by itself (STOR
// STAGED in FEAT), the file is uploaded under a temporary name (the name, a random word and ".part") and then renamed. Put fails without a
// change of the file if r fails, has more or fewer bytes than size, or if the lock is lost before the file is complete. size is
// what r holds; below 0 it is not known. It is announced (ALLO), and checked where the server can tell.
//
// A transfer has a connection of its own, which speaks for the lock by its nonce, so that the server can be asked for the lock
// meanwhile.
//
// If the reply to the last rename was lost, the error says that the outcome is not known. When ctx ends, the transfer is broken off as soon as
// r's Read returns.
//
// What the server refused matches ErrRefused.
func (l *Lock) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	return l.transfer(ctx, name, func(ctx context.Context, s *session) error {
		u := &upload{s: s, lock: l, ctx: ctx, name: name, size: size, source: r}
		err := u.run()
		if path.Dir(s.abs(name)) == l.path && !s.hasFacts() { // writing into the lock has changed the time of its directory
			_ = l.c.use(context.Background(), func(*session) error { l.mark = sight{}; return nil })
		}
		return err
	})
}

// transfer runs one on a connection of its own, and breaks it off when ctx ends or the lock is lost.
func (l *Lock) transfer(ctx context.Context, name string, run func(context.Context, *session) error) error {
	ctx, stop := l.within(ctx)
	defer stop()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := l.stands(); err != nil {
		return err
	}
	s, err := connect(ctx, l.c.e)
	if err == nil {
		defer s.drop()
		broken := context.AfterFunc(ctx, func() { s.abort(context.Cause(ctx)) })
		err = run(ctx, s)
		broken()
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil:
		s.leave()
	}
	return transferred(name, err)
}

// stands asks the server whether the lock stands, before a change that others see. A connection that is lost is left to keep.
func (l *Lock) stands() error {
	ctx, cancel := l.looking()
	defer cancel()
	err := l.use(ctx, func(s *session) error { return l.check(ctx, s) })
	if errors.Is(err, ErrLost) {
		return err
	}
	return context.Cause(l.life)
}

// transferred puts an error of a transfer on one line.
func transferred(name string, err error) error {
	var said *textproto.Error
	switch {
	case err == nil, errors.Is(err, ErrLost), errors.Is(err, ErrRefused), errors.Is(err, io.ErrUnexpectedEOF):
		return err
	case errors.Is(err, ErrUnreachable):
		return fmt.Errorf("%s: %w", name, err)
	case errors.As(err, &said) && said.Code >= 500:
		return fmt.Errorf("%w: %s: %s", ErrRefused, name, plain(err))
	}
	return &because{fmt.Errorf("%s: %s", name, plain(err)), []error{err}}
}

// upload is one Put.
type upload struct {
	s      *session
	lock   *Lock
	ctx    context.Context
	name   string // of the file
	target string // what is stored: the file, or a temporary one; "": it is to be left
	size   int64
	source io.Reader
	sent   int64
	err    error // of the source, or what was wrong with it
}

// run stores the file, under a temporary name where that is needed.
func (u *upload) run() error {
	if u.target = u.name; u.s.can("STOR", "STAGED") {
		return u.store()
	}
	u.target += "." + strings.ToLower(rand.Text()[:10]) + ".part"
	err := u.store()
	if err == nil {
		err = u.rename()
	}
	if err == nil || u.target == "" {
		return err
	}
	_ = u.lock.c.use(context.WithoutCancel(u.ctx), func(s *session) error { // u.s may be broken
		r, derr := s.ask(context.Background(), "DELE "+u.target)
		if derr == nil && !r.good() && u.sent > 0 {
			err = fmt.Errorf("%w (and %s is left: the server said %s)", err, u.target, r)
		}
		return nil
	})
	return err
}

// Read is what the library reads the content from. Whatever ends it early resets the data connection: the library closes it as if the
// file were complete.
func (u *upload) Read(p []byte) (int, error) {
	n, err := u.source.Read(p)
	u.sent += int64(n)
	switch {
	case u.ctx.Err() != nil:
		err = context.Cause(u.ctx)
	case u.size >= 0 && u.sent > u.size:
		err = fmt.Errorf("there are more than the %d bytes that were announced", u.size)
	case err == io.EOF && u.size >= 0 && u.sent < u.size:
		err = fmt.Errorf("there are %d bytes of the %d that were announced", u.sent, u.size)
	case err == io.EOF && u.target == u.name: // no rename follows
		if lost := u.lock.stands(); lost != nil {
			err = lost
		}
	}
	if err != nil && err != io.EOF {
		u.err = err
		u.s.abort(err)
		return 0, err
	}
	return n, err
}

// store is ALLO and STOR.
func (u *upload) store() error {
	if u.size >= 0 {
		r, err := u.s.ask(u.ctx, "ALLO "+strconv.FormatInt(u.size, 10))
		if err != nil {
			return err
		}
		if r.code == 452 || r.code == 552 { // others say that they do not need it, or do not know it
			return fmt.Errorf("%w: %s: the server said %s", ErrRefused, u.name, r)
		}
	}
	err := u.s.ftp.Stor(u.target, u)
	if u.err != nil {
		return u.err
	}
	return err
}

// rename publishes the temporary file, if all of it has arrived.
func (u *upload) rename() error {
	if n, err := u.s.ftp.FileSize(u.target); err == nil && n != u.sent {
		return fmt.Errorf("%d bytes were sent and %d arrived", u.sent, n)
	}
	if err := u.lock.stands(); err != nil {
		return err
	}
	err := u.s.ftp.Rename(u.target, u.name)
	if u.s.broken() != nil { // the reply was lost
		u.target = ""
		return fmt.Errorf("it is not known whether the file is in place: %w", err)
	}
	return err
}

// Get downloads a file under the lock and returns how many bytes were written to w. A download that was cut off is an error that matches
// io.ErrUnexpectedEOF, where the server tells the length (SIZE) or TLS tells the end. When ctx ends, the transfer is broken off as soon as
// w's Write returns.
func (l *Lock) Get(ctx context.Context, name string, w io.Writer) (int64, error) {
	d := &download{to: w}
	err := l.transfer(ctx, name, func(_ context.Context, s *session) error { return d.run(s, name) })
	return d.written, err
}

// download is one Get.
type download struct {
	to      io.Writer
	written int64
	err     error // of the writer
}

// Write counts, and tells an error of the writer from one of the connection.
func (d *download) Write(p []byte) (int, error) {
	n, err := d.to.Write(p)
	d.written += int64(n)
	d.err = err
	return n, err
}

func (d *download) run(s *session, name string) error {
	size, err := s.ftp.FileSize(name)
	if err != nil {
		size = -1
	}
	r, err := s.ftp.Retr(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(d, r)
	if d.err != nil {
		s.abort(d.err)
	}
	closed := r.Close()
	cut := errors.Is(err, io.ErrUnexpectedEOF) // some servers end TLS without a word: if the length is right, that does no harm
	switch {
	case d.err != nil:
		return d.err
	case err != nil && !cut:
		return err
	case closed != nil:
		return closed
	case size >= 0 && d.written != size || size < 0 && cut:
		return fmt.Errorf("%s: cut off: %d bytes of %d: %w", path.Base(name), d.written, size, io.ErrUnexpectedEOF)
	}
	return nil
}
