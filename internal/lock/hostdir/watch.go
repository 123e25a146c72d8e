package hostdir

import (
	"context"
	"iter"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

const (
	// lookEvery is the time between two rounds of Watch. A round looks at looksAtOnce of the held names, or at as many as it takes
	// to look at each within lookAtAll.
	lookEvery   = 800 * time.Millisecond
	looksAtOnce = 800
	lookAtAll   = time.Minute
	// lookTimeout is the longest time that Watch waits for one look.
	lookTimeout = time.Second
	// maxLooks is the number of looks that may be under way at a time: a mount that hangs keeps as many threads.
	maxLooks = 16
)

// Gone implements [lock.Disk]. It returns when ctx ends. A look that hangs continues in a goroutine; while too many hang, all looks
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
		gone, err = d.isGone(h)
	}()
	select {
	case <-looked:
		return gone, err
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// isGone reports whether the directory of a hold is missing or replaced in its parent.
func (d *Disk) isGone(h lock.Hold) (bool, error) {
	p, err := d.open(h.Name.Parent())
	if err != nil {
		return false, err
	}
	defer p.Close()
	s, err := p.entryOf(h.Name)
	if err != nil || s.matches(h.Directory) {
		return false, err
	}
	return p.isParentOf(h)
}

// Watch looks at the directories of all held locks in turn until ctx ends. It calls gone for each hold whose directory a program on the
// host removed or replaced: within a second if no more than looksAtOnce are held. Of more, it looks at 1,000 a second, or at as many as it
// takes to look at each within a minute. A mount that hangs delays the looks at other locks. held yields the holds at the time of its call.
// A hold may have ended before the call of gone.
func (d *Disk) Watch(ctx context.Context, held iter.Seq[lock.Hold], gone func(lock.Hold)) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var left []lock.Hold // of the turn
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
		for range min(len(left), atOnce) {
			h := left[0]
			left = left[1:]
			if d.watched(ctx, h) {
				gone(h)
			}
		}
	}
}

// watched is Gone with a time limit. An error is logged and counts as no.
func (d *Disk) watched(ctx context.Context, h lock.Hold) bool {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	gone, err := d.Gone(ctx, h)
	if err != nil {
		d.o.Log.Debug("a lock's directory cannot be looked at", "lock", h.Name, "err", err)
	}
	return gone
}
