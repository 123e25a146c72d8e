package journal

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

const (
	// roundEvery is how often the tree is searched for what the watches cannot tell.
	roundEvery = time.Minute
	// gather is how long notices are left to collect: a busy lock is looked at so often at most.
	gather = 20 * time.Millisecond
)

// Watch yields what programs on the host change, and what Commit and Open find that they have changed,
// counted from the call. While it runs it watches the parents of held locks, and
// searches a part of the tree each minute. Of several changes of one name that were not yet
// yielded, only the last one is. An event may concern a revision that the receiver knows already from a
// *lock.ConflictError, or an older one: compare.
func (s *Store) Watch(ctx context.Context) iter.Seq[lock.Event] {
	l := s.listen()
	stop := context.AfterFunc(ctx, func() { s.unlisten(l) })
	return func(yield func(lock.Event) bool) {
		defer s.unlisten(l)
		defer stop()
		pump := s.pump
		if s.tree == nil {
			pump = nil // nothing to be watched
		}
		for {
			for _, event := range l.take() {
				if ctx.Err() != nil || !yield(event) {
					return
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-s.closing:
				return
			case <-l.bell:
			case pump <- struct{}{}: // of several Watches one does the work
				pump = nil
				defer s.startPump(ctx)()
			}
		}
	}
}

// listener is one Watch: the events that it has not yielded yet, one of each name at most.
type listener struct {
	bell chan struct{}

	mu     sync.Mutex
	order  []lock.Name
	latest map[lock.Name]lock.Event
}

func (s *Store) listen() *listener {
	l := &listener{bell: make(chan struct{}, 1), latest: make(map[lock.Name]lock.Event)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners[l] = struct{}{}
	return l
}

func (s *Store) unlisten(l *listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, l)
}

// emit tells every Watch. The caller has the name locked, so that events of one name keep their order.
func (s *Store) emit(event lock.Event) {
	s.o.Log.Info("a program on the host changed a lock", "lock", event.Record.Name, "cause", event.Cause)
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.listeners {
		l.put(lock.Event{Record: clone(event.Record), Cause: event.Cause})
	}
}

func (l *listener) put(event lock.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, waiting := l.latest[event.Record.Name]; !waiting {
		l.order = append(l.order, event.Record.Name)
	}
	l.latest[event.Record.Name] = event
	select {
	case l.bell <- struct{}{}:
	default: // it rings already
	}
}

func (l *listener) take() []lock.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	events := make([]lock.Event, 0, len(l.order))
	for _, name := range l.order {
		events = append(events, l.latest[name])
	}
	l.order = nil
	clear(l.latest)
	return events
}

// startPump follows the host until the function that it returns is called, which waits.
func (s *Store) startPump(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	rounds := make(chan struct{}, 1) // a notice that only a full round can answer
	var running sync.WaitGroup
	running.Go(func() { s.follow(ctx, rounds) })
	running.Go(func() { s.rounds(ctx, rounds) })
	return func() {
		cancel()
		running.Wait()
		<-s.pump
	}
}

// rounds searches the tree each minute, and looks at all that is watched when it is asked to.
func (s *Store) rounds(ctx context.Context, asked <-chan struct{}) {
	ticker := time.NewTicker(roundEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			s.watched.sweep()
			s.verify(ctx, walkPerRound)
			if s.walk(ctx, walkPerRound, nil) != nil {
				return
			}
		case <-asked:
			s.rescan(ctx)
		}
	}
}

// rescan looks at every held lock and at everything beside one: notices were lost, or a parent was moved.
func (s *Store) rescan(ctx context.Context) {
	parents := s.watched.sweep()
	for _, record := range s.standing() {
		if ctx.Err() != nil {
			return
		}
		s.check(record.Name)
	}
	rules := s.rules.Load()
	for _, parent := range parents {
		names, _ := s.subdirectories(parent)
		for _, name := range names {
			if ctx.Err() != nil {
				return
			}
			held, _ := s.known(name)
			if _, isLock := rules.rule(name); isLock && !held {
				s.check(name)
			}
		}
	}
}

// follow reads the notices of the watches until ctx ends.
func (s *Store) follow(ctx context.Context, rounds chan<- struct{}) {
	if s.watched == nil {
		return
	}
	release := s.watched.until(ctx)
	defer release()
	for ctx.Err() == nil {
		notices, lost, err := s.watched.next()
		if err != nil {
			if ctx.Err() == nil && !s.isClosing() {
				s.o.Log.Warn("the served tree cannot be watched any more; it is searched each minute", "err", bare(err))
			}
			return
		}
		if lost {
			select {
			case rounds <- struct{}{}:
			default: // it is asked for already
			}
		}
		s.examine(notices)
		if !pause(ctx, gather) {
			return
		}
	}
}

// notice is what one batch of notices says about one name.
type notice struct {
	made, gone bool
}

// examine looks at the names that somebody else may have changed. Our own changes are mostly dropped by a
// look into memory: what we made is held, what we removed is not.
func (s *Store) examine(notices map[lock.Name]notice) {
	for name, n := range notices {
		held, busy := s.known(name)
		switch {
		case busy, held && n.gone:
			s.check(name)
		case !held && n.made:
			if _, isLock := s.rules.Load().rule(name); isLock {
				s.check(name)
			}
		}
	}
}

// known reports whether the name is held, and whether somebody is just changing it.
func (s *Store) known(name lock.Name) (held, busy bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[name]
	return e != nil && len(e.record.Holds) > 0, e != nil && e.refs > 0
}

func (s *Store) isClosing() bool {
	select {
	case <-s.closing:
		return true
	default:
		return false
	}
}

// pause waits, and reports whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
