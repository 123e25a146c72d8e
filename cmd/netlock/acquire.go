package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/ftplockd/ftplockd/locksmith"
)

// releaseTime bounds how long giving a lock back may take at the end.
const releaseTime = 10 * time.Second

// acquire takes the lock of a target, and shows on a terminal who is in the way. Its errors have a status.
func acquire(ctx context.Context, t *target) (*holding, error) {
	if err := t.needLock(); err != nil {
		return nil, err
	}
	if err := t.needOther(); err != nil {
		return nil, err
	}
	o := locksmith.Options{Shared: t.shared, Renew: t.renew}
	if term.IsTerminal(int(os.Stderr.Fd())) {
		shown := false
		show := func(line string) {
			if shown = hasRoom(os.Stderr); shown {
				fmt.Fprint(os.Stderr, "\r\x1b[K"+line)
			}
		}
		o.Waiting = func(held *locksmith.HeldError) {
			show("waiting for " + t.where() + ": " + oneLine(describe(held, time.Now())))
		}
		defer func() {
			if shown { // what comes next is somebody else's
				show("")
			}
		}()
	}
	ctx, cancel := t.limit(ctx)
	defer cancel()
	began := time.Now()
	t.tell("%s: taking the lock %s", t.name, t.where())
	c, err := locksmith.Dial(ctx, t.connect)
	if err != nil {
		return nil, classify(err, t)
	}
	for _, promise := range c.Missing() {
		t.tell("%s: the server does not have %s", t.name, promise)
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
	t.tell("getting lock took %.6f seconds, token %d", time.Since(began).Seconds(), lock.Token())
	return &holding{lock, c}, nil
}

// holding is a lock, and its connection.
type holding struct {
	*locksmith.Lock
	client *locksmith.Client
}

// release releases the lock at the end, and reports what went wrong before or with it.
func (h *holding) release(t *target) error {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTime)
	defer cancel()
	defer h.client.Close()
	return classify(h.Release(ctx), t)
}

// describe says who has a lock since when, in words that stay true while they are shown.
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
