package hostdir

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

const (
	// lookEvery is the time between two rounds of Watch. A round looks at looksAtOnce of the held names, or at as many as it takes
	// to look at each within lookAtAll.
	lookEvery   = 800 * time.Millisecond
	looksAtOnce = 800
	lookAtAll   = time.Minute
	// lookTimeout is the longest time that Watch waits for one directory.
	lookTimeout = time.Second
	// maxLooks is the number of looks of Gone that may be under way at a time, and of those of Watch that may hang. Each keeps a thread.
	maxLooks = 16
)

// look is a look at the directories of some holds, all in one parent directory.
type look struct {
	done chan struct{}
	// Set when done is closed.
	gone []lock.Hold
	err  error
}

// look starts a look. It calls end after it.
func (d *Disk) look(dir lock.Name, holds []lock.Hold, end func()) *look {
	l := &look{done: make(chan struct{})}
	go func() {
		defer end()
		defer close(l.done)
		l.gone, l.err = d.goneIn(dir, holds)
	}()
	return l
}

// goneIn returns those of the holds whose directory is missing or replaced in its parent. The error is that of the others.
func (d *Disk) goneIn(dir lock.Name, holds []lock.Hold) (gone []lock.Hold, err error) {
	p, err := d.open(dir)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	var failed []error
	for _, h := range holds {
		s, err := p.entryOf(h.Name)
		isGone := false
		if err == nil && !s.matches(h.Directory) {
			isGone, err = p.isParentOf(h)
		}
		if isGone {
			gone = append(gone, h)
		}
		if err != nil {
			failed = append(failed, err)
		}
	}
	return gone, errors.Join(failed...)
}

// Gone implements [lock.Disk]. It returns when ctx ends. A look that hangs continues in a goroutine; while too many hang, Gone fails.
func (d *Disk) Gone(ctx context.Context, h lock.Hold) (bool, error) {
	if h.Directory == (lock.DirectoryID{}) {
		return false, nil
	}
	select {
	case d.looks <- struct{}{}:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	l := d.look(h.Name.Parent(), []lock.Hold{h}, func() { <-d.looks })
	select {
	case <-l.done:
		return len(l.gone) > 0, l.err
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// Watch looks at the directories of all held locks in turn until ctx ends. It calls gone for each hold whose directory a program on the
// host removed or replaced: within a second if no more than looksAtOnce are held. Of more, it looks at 1,000 a second, or at as many as it
// takes to look at each within a minute. A mount that hangs delays the looks at other directories by lookTimeout, once for each of its
// directories; while maxLooks of them hang, Watch looks at nothing. held yields the holds at the time of its call. A hold may have ended
// before the call of gone.
func (d *Disk) Watch(ctx context.Context, held iter.Seq[lock.Hold], gone func(lock.Hold)) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	w := watcher{Disk: d, gone: gone, hanging: make(map[lock.Name]*look)}
	var left []lock.Hold // of the turn, sorted by parent directory
	var atOnce int
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		w.collect()
		if len(left) == 0 {
			left = byParent(held)
			atOnce = max(looksAtOnce, len(left)/int(lookAtAll/lookEvery)+1)
		}
		round := left[:min(len(left), atOnce)]
		left = left[len(round):]
		for len(round) > 0 {
			dir := round[0].Name.Parent()
			n := slices.IndexFunc(round, func(h lock.Hold) bool { return h.Name.Parent() != dir })
			if n < 0 {
				n = len(round)
			}
			w.lookAt(ctx, dir, round[:n])
			round = round[n:]
		}
	}
}

// byParent returns the holds that have directories, sorted by their parents.
func byParent(held iter.Seq[lock.Hold]) (all []lock.Hold) {
	for h := range held {
		if h.Directory != (lock.DirectoryID{}) {
			all = append(all, h)
		}
	}
	slices.SortStableFunc(all, func(a, b lock.Hold) int { return cmp.Compare(a.Name.Parent(), b.Name.Parent()) })
	return all
}

// watcher is the state of a Watch.
type watcher struct {
	*Disk
	gone    func(lock.Hold)
	hanging map[lock.Name]*look // looks that took longer than lookTimeout, by directory
}

// lookAt waits at most lookTimeout for a look. It skips a directory that hangs.
func (w *watcher) lookAt(ctx context.Context, dir lock.Name, holds []lock.Hold) {
	if w.hanging[dir] != nil || len(w.hanging) == maxLooks {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	l := w.look(dir, holds, func() {})
	select {
	case <-l.done:
		w.report(dir, l)
	case <-ctx.Done():
		w.hanging[dir] = l
		w.o.Log.Debug("a directory with locks hangs", "directory", dir)
	}
}

// collect reports the looks that hang no longer.
func (w *watcher) collect() {
	for dir, l := range w.hanging {
		select {
		case <-l.done:
			delete(w.hanging, dir)
			w.report(dir, l)
		default:
		}
	}
}

func (w *watcher) report(dir lock.Name, l *look) {
	if l.err != nil {
		w.o.Log.Debug("the directories of locks cannot be looked at", "directory", dir, "err", l.err)
	}
	for _, h := range l.gone {
		w.gone(h)
	}
}
