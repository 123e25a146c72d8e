package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// set takes note of the state of etcd: the trouble with a batch, "" if there is none, and whether etcd has space.
func (l *Log) set(trouble string, full bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.trouble != trouble || l.full != full {
		l.trouble, l.full = trouble, full
		l.changedLocked()
	}
}

// finish ends the term, if it goes on. From deposed and resigned on nothing is written any more.
func (l *Log) finish(as state, why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == active {
		l.why = why
		close(l.over)
	}
	if l.state == active || l.state == stepping {
		l.state = as
	}
	if as != stepping {
		l.end()
	}
}

// depose ends the term because the election key or its lease is gone.
func (l *Log) depose(why string) error {
	err := fmt.Errorf("%w: %s", ErrDeposed, why)
	l.finish(deposed, err)
	return err
}

// check returns why nothing can be changed now, whatever the lease.
func (l *Log) check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.state == deposed:
		return fmt.Errorf("%w: %w", &lock.SuspendedError{Reason: "another server takes over"}, ErrDeposed)
	case l.state == resigned:
		return lock.ErrClosed
	case l.full:
		return fmt.Errorf("%w: %w", &lock.SuspendedError{Reason: errNoSpace}, lock.ErrFull)
	case cmp.Or(l.trouble, l.refused) != "":
		return &lock.SuspendedError{Reason: cmp.Or(l.trouble, l.refused)}
	}
	return nil
}

// Valid returns nil while this server is surely the active one, and may change locks; else a *lock.SuspendedError, or one that matches it. It
// makes no request: it compares the time since boot, which goes on while a machine sleeps, with the end of the lease.
func (l *Log) Valid() error {
	if err := l.check(); err != nil {
		return err
	}
	if l.c.o.Clock.Exact().Boot >= time.Duration(l.deadline.Load()) {
		return &lock.SuspendedError{Reason: "etcd has not confirmed in time that this server is the active one"}
	}
	return nil
}

// Ready writes a beat, unless one was just written, and returns nil if a grant can be recorded. The error is why no lock can be granted.
func (l *Log) Ready() error {
	if time.Since(time.Unix(0, l.beaten.Load())) > readyAge {
		l.beat(l.term)
	}
	return l.Valid()
}

// Resign writes everything, unless that takes too long, and hands over: the election key goes, with its lease, and the next server takes
// over at once. Without it the next one waits for the end of the lease.
func (l *Log) Resign(ctx context.Context) error {
	writing, cancel := context.WithTimeout(ctx, 2*l.c.o.RequestTimeout)
	defer cancel()
	err := l.flush(writing)
	if errors.Is(err, ErrDeposed) {
		err = nil
	}
	l.Close()
	if rerr := l.c.revoke(ctx, l.lease); rerr != nil {
		err = errors.Join(err, fmt.Errorf("etcd: handing over: %w", plain(rerr)))
	}
	return err
}

// Close ends the term without handing over. Records that nothing waited for may be lost.
func (l *Log) Close() error {
	l.finish(resigned, lock.ErrClosed)
	l.writing.Wait()
	return nil
}
