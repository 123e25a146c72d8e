package hostdir

import (
	"sync"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// dirSerializer runs the changes of each directory one at a time, with an open directory that the callers share.
//
// The kernel locks a directory while it makes or removes a name in it, and threads that wait for that lock spin. So callers wait for a
// mutex first. A mount that hangs keeps one thread for each of its directories, and its callers.
type dirSerializer struct {
	open func(lock.Name) (parent, error)

	mu   sync.Mutex // held for memory only
	busy map[lock.Name]*busyDir
}

// busyDir is a directory with callers.
type busyDir struct {
	name    lock.Name
	callers int    // that have entered and not left; guarded by dirSerializer.mu
	entered uint64 // number of the last caller; guarded by dirSerializer.mu

	mu     sync.Mutex // held by the caller that changes the directory, also while it waits for the disk
	parent parent     // the zero parent: not open; guarded by mu
	opened uint64     // number of the last caller that had entered when parent was opened; guarded by mu
}

// enter waits until no other caller changes the directory, and returns it, open. It was opened after the call of enter: a program on the
// host may have replaced it before. Call leave afterwards, unless enter returns an error.
func (s *dirSerializer) enter(dir lock.Name) (*busyDir, error) {
	b, number := s.join(dir)
	b.mu.Lock()
	entered := false
	defer func() { // also if open panics
		if !entered {
			s.leave(b)
		}
	}()
	if b.isOpen() && b.opened < number {
		b.close()
	}
	if !b.isOpen() {
		if err := s.reopen(b); err != nil {
			return nil, err
		}
	}
	entered = true
	return b, nil
}

// join adds a caller and returns its number.
func (s *dirSerializer) join(dir lock.Name) (b *busyDir, number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b = s.busy[dir]; b == nil {
		b = &busyDir{name: dir}
		s.busy[dir] = b
	}
	b.callers++
	b.entered++
	return b, b.entered
}

// reopen opens the directory for the callers so far.
func (s *dirSerializer) reopen(b *busyDir) (err error) {
	s.mu.Lock()
	b.opened = b.entered
	s.mu.Unlock()
	b.parent, err = s.open(b.name)
	return err
}

// leave lets the next caller change the directory. The last one closes it.
func (s *dirSerializer) leave(b *busyDir) {
	s.mu.Lock()
	b.callers--
	last := b.callers == 0
	if last {
		delete(s.busy, b.name)
	}
	s.mu.Unlock()
	if last && b.isOpen() {
		b.close()
	}
	b.mu.Unlock()
}

func (b *busyDir) isOpen() bool { return b.parent.Directory != nil }

func (b *busyDir) close() {
	b.parent.Close()
	b.parent = parent{}
}
