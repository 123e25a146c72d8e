package main

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/ftplockd/ftplockd/locksmith"
)

// releaseTime limits how long the release of a lock may take at the end.
const releaseTime = 10 * time.Second

// errNested is the error for the lock of the netlock that runs this process.
var errNested = errors.New("is already held by the netlock that runs this")

// acquire acquires the lock of a target with a note. On a terminal it names the holder when it waits. Its errors have an exit status.
func acquire(ctx context.Context, t *target, note string) (*locksmith.Lock, error) {
	if err := t.needLock(); err != nil {
		return nil, err
	}
	if nested, err := t.holdsSameLock(ctx); err != nil {
		return nil, err
	} else if nested {
		return nil, fail(exitUsage, "%s: %s %w: it would wait for itself (or else unset %s)", t.name, os.Getenv(pathVariable), errNested, pathVariable)
	}
	o := locksmith.Options{Shared: t.shared, Renew: t.renew, Note: note}
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	answered := false // by the server
	o.OnWait = func(err error) {
		first := !answered
		answered = answered || !errors.Is(err, locksmith.ErrUnreachable) || errors.Is(err, locksmith.ErrUnknown)
		switch {
		case !answered && t.until.IsZero(): // without a time limit, a wrong address is an error
			giveUp(err)
		case first && errors.Is(err, locksmith.ErrHeld) && term.IsTerminal(int(os.Stderr.Fd())):
			message(os.Stderr, "waiting: "+err.Error())
		}
	}
	ctx, cancel := t.withDeadline(ctx)
	defer cancel()
	take := locksmith.Acquire
	if t.try {
		take = locksmith.TryAcquire
	}
	lock, err := take(ctx, t.connect, t.path, o)
	return lock, classify(err, t)
}

// release releases the lock and closes the connection. It returns the error of the lock, if it was lost, or of the release.
func release(lock *locksmith.Lock, t *target) error {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTime)
	defer cancel()
	err := lock.Release(ctx)
	if errors.Is(err, locksmith.ErrRefused) { // files are in it, or locks below it
		return fail(exitProtocol, "%s: %w; it ends after this connection", t.name, err)
	}
	return classify(err, t)
}
