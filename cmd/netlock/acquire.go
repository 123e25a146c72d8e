package main

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/ftplockd/ftplockd/locksmith"
)

// releaseTime limits how long the release of a lock may take at the end.
const releaseTime = 10 * time.Second

// errNested is the error for the lock of the netlock that runs this process.
var errNested = errors.New("is already held by the netlock that runs this")

// acquire acquires the lock of a target. On a terminal it names the holder when it waits. Its errors have an exit status.
func acquire(ctx context.Context, t *target) (*holding, error) {
	if err := t.needLock(); err != nil {
		return nil, err
	}
	if nested, err := t.holdsSameLock(ctx); err != nil {
		return nil, err
	} else if nested {
		return nil, fail(exitUsage, "%s: %s %w: it would wait for itself (or else unset %s)", t.name, os.Getenv(pathVariable), errNested, pathVariable)
	}
	o := locksmith.Options{Shared: t.shared, Renew: t.renew}
	if term.IsTerminal(int(os.Stderr.Fd())) {
		var once sync.Once
		o.Waiting = func(held *locksmith.HeldError) {
			once.Do(func() { message(os.Stderr, "waiting: "+held.Error()) })
		}
	}
	ctx, cancel := t.withDeadline(ctx)
	defer cancel()
	c, err := locksmith.Dial(ctx, t.connect)
	if err != nil {
		return nil, classify(err, t)
	}
	take := c.Acquire
	if t.try {
		take = c.TryAcquire
	}
	lock, err := take(ctx, t.path, o)
	if err != nil {
		_ = c.Close()
		return nil, classify(err, t)
	}
	return &holding{lock, c}, nil
}

// holding is a lock and its connection.
type holding struct {
	*locksmith.Lock
	client *locksmith.Client
}

// release releases the lock and closes the connection. It returns the error of the lock, if it was lost, or of the release.
func (h *holding) release(t *target) error {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTime)
	defer cancel()
	defer h.client.Close()
	err := h.Release(ctx)
	if errors.Is(err, locksmith.ErrRefused) { // files are in it, or locks below it
		return fail(exitProtocol, "%s: %w; it ends after this connection", t.name, err)
	}
	return classify(err, t)
}
