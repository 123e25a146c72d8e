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
)

// Gone implements [lock.Disk]. It returns within the deadline of ctx, and leaves a look that hangs to a goroutine, of which there is one
// for each directory above.
func (d *Disk) Gone(ctx context.Context, h lock.Hold) (bool, error) {
	if _, ok := d.placeOf(h); !ok {
		return false, nil
	}
	var gone bool // not to be read if run returned early
	err := d.looks.run(ctx, h.Name.Parent(), func(p *parent) error {
		s, err := p.look(h.Name)
		gone = err == nil && !s.is(h.Directory) && d.sameParent(p, h)
		return err
	})
	if err != nil {
		return false, err
	}
	return gone, nil
}

// Watch looks at the directories of all held locks in turn until ctx ends, and calls gone for each hold whose directory a program on the
// host removed or replaced: within a second, or a minute with more than 60,000 held. A mount that hangs delays the looks at
// other locks once, by a second. held yields the holds at the time of its call. A hold may have ended when gone gets it.
func (d *Disk) Watch(ctx context.Context, held iter.Seq[lock.Hold], gone func(lock.Hold)) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	t := turn{disk: d, hanging: make(map[uint64]lock.Name)}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			t.round(ctx, held, gone)
		}
	}
}

// turn is a look at each hold that had a directory when it began.
type turn struct {
	disk    *Disk
	left    []lock.Hold
	atOnce  int
	hanging map[uint64]lock.Name // for each device that did not answer, the directory in which a look is under way
}

// round looks at some of the holds that the turn has left. With none left another turn begins.
func (t *turn) round(ctx context.Context, held iter.Seq[lock.Hold], gone func(lock.Hold)) {
	if len(t.left) == 0 {
		for h := range held {
			if h.Directory != (lock.DirectoryID{}) {
				t.left = append(t.left, h)
			}
		}
		t.atOnce = max(looksAtOnce, len(t.left)/int(lookAtAll/lookEvery)+1)
	}
	n := min(len(t.left), t.atOnce)
	for _, h := range t.left[:n] {
		if ctx.Err() != nil {
			return
		}
		if !t.look(ctx, h) {
			continue
		}
		gone(h)
		if !t.disk.o.Held(h.Name) {
			t.disk.forget(h.Name, h.Directory)
		}
	}
	t.left = t.left[n:]
}

// look reports whether a hold's directory is gone. On a device that does not answer it does not look.
func (t *turn) look(ctx context.Context, h lock.Hold) bool {
	at, ok := t.disk.placeOf(h)
	if dir, hangs := t.hanging[at.device]; !ok || hangs && t.disk.looks.busy(dir) {
		return false
	}
	delete(t.hanging, at.device)
	ctx, cancel := context.WithTimeout(ctx, lookBound)
	defer cancel()
	gone, err := t.disk.Gone(ctx, h)
	if errors.Is(err, context.DeadlineExceeded) {
		t.hanging[at.device] = h.Name.Parent()
	}
	if err != nil {
		t.disk.o.Log.Debug("a lock's directory cannot be looked at", "lock", h.Name, "err", err)
	}
	return gone
}
