package locksmith

import (
	"cmp"
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

// Put uploads a file under the lock. Other clients see the old file or the new one: if the server does not publish uploads in one step (STOR
// STAGED in FEAT), Put uploads to a temporary name (the name, a random word and ".part") and renames it. Put fails and does not
// change the file if r fails or does not have size bytes, or if the lock is lost before the file is complete. A negative size means unknown.
//
// A transfer has a connection of its own, which acts for the lock by its JobKey. So the first connection can check the lock meanwhile.
//
// Put tries once. The error matches [ErrLocal] if r fails, and [ErrRefused] if the server refuses the transfer; then the file is not changed. After
// [ErrUnreachable] or [ErrTransfer], and if ctx or the lock has ended, the result is unknown, because the last reply may have been lost: the file is the
// old or the new one. While the lock is held, Put may be called again after these, with a reader that begins anew.
//
// When ctx ends, Put returns within about 100 ms, or as soon as r's Read returns.
func (l *Lock) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	return l.transfer(ctx, name, func(ctx context.Context, s *session) error {
		u := &upload{s: s, lock: l, ctx: ctx, name: name, size: size, source: r}
		return u.run()
	})
}

// transfer calls run with a connection of its own, and aborts it when ctx ends or the lock is lost.
func (l *Lock) transfer(ctx context.Context, name string, run func(context.Context, *session) error) error {
	held, stop := l.within(ctx)
	defer stop()
	if held.Err() != nil {
		return l.endedError(ctx, held.Err())
	}
	if err := l.checkHeld(held); err != nil {
		return l.endedError(ctx, err)
	}
	s, err := connect(held, l.e)
	if err == nil {
		defer s.leave(held)
		late, stopLate := linger(held, afterEnd)
		defer stopLate()
		stopAbort := context.AfterFunc(held, func() { s.abort(ended(held)) })
		stopCut := context.AfterFunc(late, func() { s.cut(ended(held)) })
		err = run(held, s)
		stopAbort()
		stopCut()
	}
	if replied, ok := errors.AsType[*textproto.Error](err); ok && replied.Code >= 500 { // perhaps because the lock was taken away
		err = cmp.Or(l.checkHeld(held), err)
	}
	return transferError(name, l.endedError(ctx, err))
}

// checkHeld returns an error if the lock is no longer held, or if ctx has ended. Call it before a visible change. If the connection is lost, keep connects
// again. The check goes on after the end of ctx, because a command that is cut off ends the connection.
func (l *Lock) checkHeld(ctx context.Context) error {
	result := make(chan error, 1)
	go func() {
		check, cancel := l.checkContext()
		defer cancel()
		result <- l.use(check, func(s *session) error { return l.check(check, s) })
	}()
	select {
	case err := <-result:
		if errors.Is(err, ErrLost) {
			return err
		}
		return context.Cause(l.life)
	case <-ctx.Done():
		return ended(ctx)
	}
}

// transferError returns the error of a transfer on one line, with its sentinel.
func transferError(name string, err error) error {
	var replied *textproto.Error
	is := func(target error) bool { return errors.Is(err, target) }
	switch {
	case err == nil, is(ErrLost), is(ErrReleased), is(ErrUnknown), is(ErrRefused), is(ErrTransfer), is(ErrTLS), is(ErrLogin),
		is(context.Canceled), is(context.DeadlineExceeded):
		return err
	case is(ErrUnreachable), is(ErrLocal):
		return fmt.Errorf("%s: %w", name, err)
	case errors.As(err, &replied) && replied.Code >= 500:
		return fmt.Errorf("%w: %s: %s", ErrRefused, name, plain(err))
	}
	return &causedError{fmt.Errorf("%s: %s", name, plain(err)), []error{ErrTransfer, err}}
}

// upload is one Put.
type upload struct {
	s      *session
	lock   *Lock
	ctx    context.Context
	name   string // of the file
	target string // the name for STOR; "": do not remove it
	size   int64
	source io.Reader
	sent   int64
}

// run stores the file, under a temporary name if that is needed.
func (u *upload) run() error {
	if u.target = u.name; u.s.can("STOR", "STAGED") {
		return u.store()
	}
	u.target += "." + strings.ToLower(rand.Text()[:10]) + ".part"
	err := u.store()
	if err == nil {
		err = u.rename()
	}
	if err != nil && u.target != "" {
		err = u.remove(err)
	}
	return err
}

// remove removes the temporary file after an error, on a new connection if that of the transfer is broken. After the end of the context it does the latter in
// a goroutine, which ends after closeTimeout.
func (u *upload) remove(err error) error {
	limit := checkTimeout
	if u.ctx.Err() != nil {
		limit = closeTimeout
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(u.ctx), limit)
	if u.s.broken() == nil {
		defer cancel()
		return u.removeOn(ctx, u.s, err)
	}
	removed := make(chan error, 1)
	go func() {
		defer cancel()
		s, cerr := connect(ctx, u.lock.e)
		if cerr != nil {
			removed <- err
			return
		}
		defer s.leave(ctx)
		removed <- u.removeOn(ctx, s, err)
	}()
	select {
	case err = <-removed:
	case <-u.ctx.Done():
	}
	return err
}

// removeOn removes the temporary file on a connection.
func (u *upload) removeOn(ctx context.Context, s *session, err error) error {
	r, derr := s.ask(ctx, "DELE "+u.target)
	if derr == nil && !r.positive() && u.sent > 0 {
		err = fmt.Errorf("%w (and %s is left: the server replied %s)", err, u.target, r)
	}
	return err
}

// read reads from the source.
func (u *upload) read(p []byte) (int, error) {
	n, err := u.source.Read(p)
	u.sent += int64(n)
	switch {
	case u.ctx.Err() != nil:
		err = ended(u.ctx)
	case u.size >= 0 && u.sent > u.size:
		err = localError(fmt.Errorf("the source has more than the announced %d bytes", u.size))
	case err == io.EOF && u.size >= 0 && u.sent < u.size:
		err = localError(fmt.Errorf("the source has %d bytes instead of the announced %d", u.sent, u.size))
	case err != nil && err != io.EOF:
		err = localError(err)
	case err == io.EOF && u.target == u.name: // no rename follows
		if lost := u.lock.checkHeld(u.ctx); lost != nil {
			err = lost
		}
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
		if r.code == 452 || r.code == 552 { // other servers reply that they do not need ALLO, or do not have it
			return fmt.Errorf("%w: %s: the server replied %s", ErrRefused, u.name, r)
		}
	}
	return u.s.store(u.target, u.read)
}

// rename publishes the temporary file if all of it has arrived.
func (u *upload) rename() error {
	if n, err := u.s.ftp.FileSize(u.target); err == nil && n != u.sent {
		return fmt.Errorf("%d bytes were sent and %d arrived", u.sent, n)
	}
	if err := u.lock.checkHeld(u.ctx); err != nil {
		return err
	}
	err := u.s.ftp.Rename(u.target, u.name)
	if u.s.broken() != nil { // the reply was lost
		u.target = ""
		return fmt.Errorf("the reply to the rename was lost, so the file may be published: %w", u.s.broken())
	}
	return err
}

// Get downloads a file under the lock and returns the number of bytes that were written to w. The errors are those of Put; [ErrLocal] means that w fails. If the download is cut off, the error also matches
// io.ErrUnexpectedEOF, provided that the server has SIZE or uses TLS. When ctx ends, Get returns within about
// 100 ms, or as soon as w's Write returns.
func (l *Lock) Get(ctx context.Context, name string, w io.Writer) (written int64, err error) {
	err = l.transfer(ctx, name, func(_ context.Context, s *session) error {
		written, err = download(s, name, w)
		return err
	})
	return written, err
}

// localError returns an error of a reader or writer of the caller.
func localError(err error) error {
	return &causedError{errors.New(plain(err)), []error{ErrLocal, err}}
}

// destination marks the errors of a writer.
type destination struct{ io.Writer }

// Write implements io.Writer.
func (d destination) Write(p []byte) (int, error) {
	n, err := d.Writer.Write(p)
	if err != nil {
		err = localError(err)
	}
	return n, err
}

// download copies a file to w.
func download(s *session, name string, w io.Writer) (int64, error) {
	size, err := s.ftp.FileSize(name)
	if err != nil {
		size = -1
	}
	r, err := s.ftp.Retr(name)
	if err != nil {
		return 0, err
	}
	written, err := io.Copy(destination{w}, r)
	cut := errors.Is(err, io.ErrUnexpectedEOF) // some servers end TLS without close_notify, which is no error if the length is right
	if err != nil && !cut {
		s.abort(err)
	}
	closed := r.Close()
	switch {
	case err != nil && !cut:
		return written, err
	case closed != nil:
		return written, closed
	case size >= 0 && written != size || size < 0 && cut:
		cut := fmt.Errorf("%s: cut off: %d bytes of %d: %w", path.Base(name), written, size, io.ErrUnexpectedEOF)
		return written, &causedError{cut, []error{ErrTransfer}}
	}
	return written, nil
}
