package journal

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// maxIdle is how many directories without a held lock may stay watched between two sweeps: the next lock
// will often be made in the same directory.
const maxIdle = 1024

// watched are the directories that held locks lie in. A nil *watched watches nothing.
type watched struct {
	root string
	out  *slog.Logger
	n    *notifier

	mu      sync.Mutex
	parents map[lock.Name]*parent
	names   map[int32]lock.Name // by watch descriptor
	idle    int                 // how many parents have no locks
	refused bool                // the system allows no further watch; it was logged
	closed  bool                // the notifier's descriptor may be another file's
}

// parent is one watched directory.
type parent struct {
	locks int   // how many are held directly in it
	watch int32 // descriptor; noWatch if there is none
}

const noWatch = -1

func newWatched(o Options) *watched {
	if o.FS == nil || o.Root == "" {
		return nil
	}
	n, err := newNotifier()
	if err != nil {
		o.Log.Warn("the served tree cannot be watched; it is searched each minute", "err", bare(err))
		return nil
	}
	return &watched{
		root: o.Root, out: o.Log, n: n,
		parents: make(map[lock.Name]*parent), names: make(map[int32]lock.Name),
	}
}

// add counts a lock in the directory, and watches it from the first on.
func (w *watched) add(dir lock.Name) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.parents[dir]
	switch {
	case p == nil:
		p = &parent{watch: noWatch}
		w.parents[dir] = p
	case p.locks == 0:
		w.idle--
	}
	p.locks++
	w.watchLocked(dir, p)
}

func (w *watched) watchLocked(dir lock.Name, p *parent) {
	if p.watch != noWatch || w.closed {
		return
	}
	watch, err := w.n.watch(filepath.Join(w.root, string(dir)))
	if err != nil {
		if !w.refused && exhausted(err) {
			w.refused = true
			w.out.Warn("no more directories can be watched; they are searched each minute", "err", err)
		}
		return
	}
	// A directory that was renamed keeps its descriptor, which speaks for the new name from now on.
	if before, ok := w.names[watch]; ok && before != dir {
		w.parents[before].watch = noWatch
	}
	p.watch = watch
	w.names[watch] = dir
}

// retry watches a directory in which locks are counted, if that was impossible before: it may be there by now.
func (w *watched) retry(dir lock.Name) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.parents[dir]; p != nil {
		w.watchLocked(dir, p)
	}
}

// drop counts one lock less. The directory stays watched for a while.
func (w *watched) drop(dir lock.Name) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.parents[dir]
	p.locks--
	if p.locks > 0 {
		return
	}
	w.idle++
	if w.idle > maxIdle {
		w.sweepLocked()
	}
}

// sweep stops watching the directories that have no locks any more, tries again to watch those that have but
// are not watched, and returns all of these.
func (w *watched) sweep() []lock.Name {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sweepLocked()
	w.refused = false
	dirs := make([]lock.Name, 0, len(w.parents))
	for dir, p := range w.parents {
		w.watchLocked(dir, p)
		dirs = append(dirs, dir)
	}
	return dirs
}

func (w *watched) sweepLocked() {
	for dir, p := range w.parents {
		if p.locks > 0 {
			continue
		}
		if p.watch != noWatch && !w.closed {
			w.n.unwatch(p.watch)
			delete(w.names, p.watch)
		}
		delete(w.parents, dir)
	}
	w.idle = 0
}

// until makes next return when ctx ends. The caller calls release when it is done with next.
func (w *watched) until(ctx context.Context) (release func()) {
	w.n.deadline(time.Time{})
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		w.n.deadline(time.Unix(1, 0))
	})
	return func() {
		if !stop() {
			<-interrupted
		}
	}
}

// next waits for notices and returns them by name. lost says that there were some which it cannot tell.
func (w *watched) next() (notices map[lock.Name]notice, lost bool, err error) {
	raw, err := w.n.read()
	if err != nil {
		return nil, false, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	notices = make(map[lock.Name]notice)
	for _, r := range raw {
		dir, ok := w.names[r.watch]
		switch {
		case r.overflow:
			lost = true
		case !ok: // not watched any more
		case r.moved:
			lost = true
			if !w.closed {
				w.n.unwatch(r.watch)
			}
			w.forgetLocked(dir, r.watch)
		case r.ended:
			lost = true
			w.forgetLocked(dir, r.watch)
		case r.directory:
			name := child(dir, r.base)
			n := notices[name]
			notices[name] = notice{made: n.made || r.made, gone: n.gone || r.gone}
		}
	}
	return notices, lost, nil
}

func (w *watched) forgetLocked(dir lock.Name, watch int32) {
	delete(w.names, watch)
	if p := w.parents[dir]; p != nil {
		p.watch = noWatch
	}
}

func (w *watched) close() error {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	return w.n.close()
}

// rawNotice is one notice of the system.
type rawNotice struct {
	watch     int32
	base      string // of what changed in the directory
	directory bool   // it is one
	made      bool
	gone      bool
	moved     bool // the watched directory itself has another name now
	ended     bool // the watched directory is gone
	overflow  bool // notices were lost
}
