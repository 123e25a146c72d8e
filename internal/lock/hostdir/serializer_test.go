package hostdir

import (
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// openDirectory is a Directory with a working Close only.
type openDirectory struct {
	Directory
	close func()
}

func (o openDirectory) Close() error { o.close(); return nil }

// testSerializer is a dirSerializer that counts how often it opens and closes a directory. The fields are for one caller at a time.
type testSerializer struct {
	dirSerializer
	opened, closed int
	fail           func() error // called when a directory is opened
}

func newTestSerializer() *testSerializer {
	s := &testSerializer{fail: func() error { return nil }}
	s.dirSerializer = dirSerializer{busy: make(map[lock.Name]*busyDir), open: func(n lock.Name) (parent, error) {
		if err := s.fail(); err != nil {
			return parent{}, err
		}
		s.opened++
		return parent{Directory: openDirectory{nil, func() { s.closed++ }}, name: n}, nil
	}}
	return s
}

func (s *testSerializer) mustEnter(t *testing.T, dir lock.Name) *busyDir {
	t.Helper()
	b, err := s.enter(dir)
	if err != nil || b.parent.name != dir {
		t.Fatalf("%+v, %v", b, err)
	}
	return b
}

// waitFor waits until n callers have entered the directory or wait for it.
func (s *testSerializer) waitFor(b *busyDir, n int) {
	for {
		s.mu.Lock()
		callers := b.callers
		s.mu.Unlock()
		if callers == n {
			return
		}
		runtime.Gosched()
	}
}

func TestChangesInADirectoryAreMadeOneAtATime(t *testing.T) {
	s := newTestSerializer()
	first := s.mustEnter(t, "/a")
	s.leave(s.mustEnter(t, "/b")) // another directory does not wait
	var wg sync.WaitGroup
	changes := 0 // the race detector reports two at a time
	for range 9 {
		wg.Go(func() {
			b, err := s.enter("/a")
			if err != nil || b != first {
				t.Error(b, err)
				return
			}
			changes++
			s.leave(b)
		})
	}
	s.waitFor(first, 10)
	if changes != 0 {
		t.Errorf("%d changes at the same time", changes)
	}
	s.leave(first)
	wg.Wait()
	if changes != 9 || len(s.busy) != 0 {
		t.Errorf("%d changes, %d busy directories", changes, len(s.busy))
	}
	if s.opened != 3 || s.closed != 3 { // /a for the first caller, /a for those that waited, and /b
		t.Errorf("opened %d times, closed %d times", s.opened, s.closed)
	}
}

// A program on the host may have replaced the directory after an earlier caller opened it.
func TestADirectoryIsOpenedAfterTheCall(t *testing.T) {
	s := newTestSerializer()
	var wg sync.WaitGroup
	b := s.mustEnter(t, "/a")
	for i := range 5 {
		next := make(chan *busyDir)
		wg.Go(func() { b, _ := s.enter("/a"); next <- b })
		s.waitFor(b, 2)
		s.leave(b)
		if b = <-next; s.opened != i+2 {
			t.Errorf("opened %d times for %d callers", s.opened, i+2)
		}
	}
	s.leave(b)
	wg.Wait()
	if s.opened != s.closed {
		t.Errorf("opened %d times, closed %d times", s.opened, s.closed)
	}
}

func TestADirectoryThatCannotBeOpenedBlocksNoCaller(t *testing.T) {
	s := newTestSerializer()
	failed := errors.New("failed")
	s.fail = func() error { return failed }
	if _, err := s.enter("/a"); err != failed {
		t.Error(err)
	}
	s.fail = func() error { panic("broken") }
	func() {
		defer func() {
			if recover() != "broken" {
				t.Error("no panic")
			}
		}()
		s.enter("/a")
	}()
	s.fail = func() error { return nil }
	s.leave(s.mustEnter(t, "/a"))
	if len(s.busy) != 0 {
		t.Error("still busy")
	}
}
