package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/ftplockd/ftplockd/locksmith"
)

// releaseTime limits how long the release of a lock may take at the end.
const releaseTime = 10 * time.Second

// acquire acquires the lock of a target. On a terminal it shows the holder while it waits. Its errors have an exit status.
func acquire(ctx context.Context, t *target) (*holding, error) {
	if err := t.needLock(); err != nil {
		return nil, err
	}
	if t.inside() {
		return nil, fail(exitUsage, "%s: %s is already held by the netlock that runs this: it would wait for itself (or else unset %s)", t.name, os.Getenv(pathVariable), pathVariable)
	}
	o := locksmith.Options{Shared: t.shared, Renew: t.renew}
	if term.IsTerminal(int(os.Stderr.Fd())) {
		var written <-chan error // the result of the last line; nil before the first one
		o.Waiting = func(held *locksmith.HeldError) {
			select {
			case <-written:
				written = nil
			default:
			}
			if written == nil { // else the terminal takes no output at the moment (^S)
				written = startWrite(os.Stderr, "\r\x1b[K"+"waiting for "+t.where()+": "+oneLine(describe(held, time.Now())))
			}
		}
		defer func() {
			if written != nil {
				_ = await(written)
				_ = await(startWrite(os.Stderr, "\r\x1b[K"))
			}
		}()
	}
	ctx, cancel := t.limit(ctx)
	defer cancel()
	began := time.Now()
	t.log("%s: taking the lock %s", t.name, t.where())
	c, err := locksmith.Dial(ctx, t.connect)
	if err != nil {
		return nil, classify(err, t)
	}
	for _, promise := range c.Missing() {
		t.log("%s: the server does not have %s", t.name, promise)
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
	t.log("getting lock took %.6f seconds, token %d", time.Since(began).Seconds(), lock.Token())
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
	return classify(h.Release(ctx), t)
}

// describe names the holder of a lock, and the time since when it holds the lock. The text stays true while it is on the screen.
func describe(held *locksmith.HeldError, now time.Time) string {
	text := "held by another client"
	if held.Holder != "" {
		text = "held by " + held.Holder + " since " + now.Add(-held.Held).Format("15:04:05")
	}
	if held.Waiting > 0 {
		text += fmt.Sprintf(", %d in the queue", held.Waiting)
	}
	return text
}
