package hostdir

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

const (
	// lookEvery is how often some of the held names are looked at: all of them, so that a change is noticed within a second,
	// or at most looksAtOnce, or as many as it takes to look at each in lookAtAll.
	lookEvery   = 800 * time.Millisecond
	looksAtOnce = 800
	lookAtAll   = time.Minute
	// lookBound is how long Watch waits for one look.
	lookBound = time.Second
	// hangingLooks is how many looks may be under way at a time: a mount that hangs keeps that many threads.
	hangingLooks = 16
)

// Gone implements [lock.Disk]. It returns within the deadline of ctx, and leaves a look that hangs to a goroutine. While many hang, all looks
// fail.
func (d *Disk) Gone(ctx context.Context, h lock.Hold) (bool, error) {
	if h.Directory == (lock.DirectoryID{}) {
		return false, nil
	}
	select {
	case d.looks <- struct{}{}:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	var gone bool // after looked
	var err error
	looked := make(chan struct{})
	go func() {
		defer func() { <-d.looks }()
		defer close(looked)
		gone, err = d.lost(h)
	}()
	select {
	case <-looked:
		return gone, err
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// lost reports whether the directory of a hold is missing or replaced in its parent.
func (d *Disk) lost(h lock.Hold) (bool, error) {
	p, err := d.open(h.Name.Parent())
	if err != nil {
		return false, err
	}
	defer p.Close()
	s, err := p.look(h.Name)
	if err != nil || s.is(h.Directory) {
		return false, err
	}
	return p.had(h)
}

// Watch looks at the directories of all held locks in turn until ctx ends, and calls gone for each hold whose directory a program on the
// host removed or replaced: within a second, or a minute with more than 60,000 held. A mount that hangs delays the looks at
// other locks. held yields the holds at the time of its call. A hold may have ended when gone gets it.
func (d *Disk) Watch(ctx context.Context, held iter.Seq[lock.Hold], gone func(lock.Hold)) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var left []lock.Hold // of the turn; with none left another turn begins
	var atOnce int
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if len(left) == 0 {
			for h := range held {
				left = append(left, h)
			}
			atOnce = max(looksAtOnce, len(left)/int(lookAtAll/lookEvery)+1)
		}
		n := min(len(left), atOnce)
		for _, h := range left[:n] {
			isGone, err := d.watched(ctx, h)
			if errors.Is(err, context.DeadlineExceeded) {
				break
			}
			if isGone {
				gone(h)
			}
		}
		left = left[n:]
	}
}

// watched is a look of Watch.
func (d *Disk) watched(ctx context.Context, h lock.Hold) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, lookBound)
	defer cancel()
	gone, err := d.Gone(ctx, h)
	if err != nil {
		d.o.Log.Debug("a lock's directory cannot be looked at", "lock", h.Name, "err", err)
	}
	return gone, err
}
