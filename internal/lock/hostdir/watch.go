package hostdir

import (
	"context"
	"io/fs"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

const (
	// lookEvery is how often some of the held names are looked at: all of them, so that a change is noticed within a second,
	// or at most looksAtOnce, or as many as it takes to look at each in lookAtAll.
	lookEvery   = 800 * time.Millisecond
	looksAtOnce = 800
	lookAtAll   = time.Minute
	// walkEvery is how often the tree is searched for directories that programs on the host made.
	walkEvery = time.Minute
	// How many directory entries are looked at in one go. What is left is for the next round.
	walkAtStart  = 200_000
	walkPerRound = 10_000
)

// Watch yields what programs on the host change, and what Commit finds that they have changed, counted from the call. While it
// runs it looks at the held locks in turn, and searches a part of the tree each minute; a mount that hangs ends the search, and
// delays the looks at other locks once, by a second for each lock below it. An event may concern a revision that the receiver knows already from a
// *lock.ConflictError, or an older one: compare.
func (s *Store) Watch(ctx context.Context) iter.Seq[lock.Event] {
	events := s.watchers.Watch(ctx)
	return func(yield func(lock.Event) bool) {
		var t turn
		defer t.looking.Wait()
		var searches sync.WaitGroup
		defer searches.Wait()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		searches.Go(func() { every(ctx, lookEvery, func() { s.look(ctx, &t) }) })
		searches.Go(func() { every(ctx, walkEvery, func() { _ = s.walk(ctx, walkPerRound) }) }) // it ends early when ctx does
		events(yield)
	}
}

// every calls f again and again until ctx ends.
func every(ctx context.Context, d time.Duration, f func()) {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f()
		}
	}
}

// turn is a look at each name that was held when it began.
type turn struct {
	left    []lock.Name
	atOnce  int
	looking sync.WaitGroup
}

// look looks at some of the names that the turn has left. With none left another turn begins. A name below a mount that hangs
// is left to its goroutine after a while.
func (s *Store) look(ctx context.Context, t *turn) {
	if len(t.left) == 0 {
		for record, err := range s.inner.All(ctx) {
			if err != nil {
				return
			}
			t.left = append(t.left, record.Name)
		}
		t.atOnce = max(looksAtOnce, len(t.left)/int(lookAtAll/lookEvery)+1)
	}
	n := min(len(t.left), t.atOnce)
	for _, name := range t.left[:n] {
		over := make(chan struct{})
		t.looking.Go(func() {
			defer close(over)
			s.check(ctx, name)
		})
		select {
		case <-over:
		case <-time.After(lookEvery):
		}
	}
	t.left = t.left[n:]
}

// check compares a name's record with what stands there now, unless somebody does or changes it.
func (s *Store) check(ctx context.Context, name lock.Name) {
	unlock, busy := s.tryLock(name)
	if ctx.Err() != nil || busy != nil {
		return
	}
	defer unlock()
	record, err := s.inner.Get(ctx, name)
	if err == nil {
		err = s.meet(ctx, record)
	}
	if err != nil && !isConflict(err) {
		s.o.Log.Debug("a lock's directory cannot be looked at", "lock", name, "err", err)
	}
}

// walk reads directories, for so many entries, and takes notice of each that is a lock but nobody's. It
// goes on where it stopped the last time, and over again from the roots of the rules.
func (s *Store) walk(ctx context.Context, budget int) error {
	s.walking.Lock()
	defer s.walking.Unlock()
	rules := *s.rules.Load()
	if len(s.pending) == 0 {
		s.pending = slices.Clone(rules.Roots())
	}
	if len(s.pending) == 0 {
		s.pending = []lock.Name{"/"}
	}
	for len(s.pending) > 0 && budget > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		dir := s.pending[len(s.pending)-1]
		s.pending = s.pending[:len(s.pending)-1]
		infos := s.read(dir)
		budget -= 1 + len(infos)
		for _, info := range infos {
			if !info.IsDir() {
				continue
			}
			name := child(dir, info.Name())
			if !isLeaf(info) {
				s.pending = append(s.pending, name)
			}
			if _, isLock := rules.For(name); isLock {
				if record, err := s.inner.Get(ctx, name); err == nil && len(record.Holds) == 0 {
					s.check(ctx, name)
				}
			}
		}
	}
	return nil
}

// read returns what is in a directory. What cannot be read has nothing in it.
func (s *Store) read(dir lock.Name) []fs.FileInfo {
	d, err := s.tree.fs.Open(string(dir))
	if err != nil {
		s.o.Log.Debug("a directory cannot be searched for locks made on the host", "directory", dir, "err", bare(err))
		return nil
	}
	defer d.Close()
	infos, err := d.Readdir(-1)
	if err != nil {
		s.o.Log.Debug("a directory cannot be searched for locks made on the host", "directory", dir, "err", bare(err))
	}
	return infos
}

// isLeaf reports whether surely no directory lies in a directory: where each of those is one more link, the directory itself has two. Nearly
// all locks are leaves, and need not be opened.
func isLeaf(info fs.FileInfo) bool {
	links, ok := info.Sys().(interface{ Links() uint64 })
	return ok && links.Links() == 2
}

func child(dir lock.Name, base string) lock.Name {
	if dir == "/" {
		return lock.Name("/" + base)
	}
	return dir + "/" + lock.Name(base)
}
