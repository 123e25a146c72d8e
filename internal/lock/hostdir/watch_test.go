package hostdir_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

func TestOnlyAMissingOrReplacedDirectoryIsGone(t *testing.T) {
	s := newScene(t)
	removed, renamed, replaced, stays := s.acquire("/locks/a"), s.acquire("/locks/b"), s.acquire("/locks/c"), s.acquire("/locks/d")
	s.rmdir("/locks/a")
	s.rename("/locks/b", "/locks/other")
	s.replace("/locks/c")
	for _, h := range []lock.Hold{removed, renamed, replaced} {
		s.gone(h, true)
	}
	s.gone(stays, false)
	s.gone(lock.Hold{Name: "/locks/none"}, false)
}

func TestAnUnmountedLockRootEndsNothing(t *testing.T) {
	s := newScene(t)
	h := s.acquire("/locks/a")
	s.rename("/locks", "/elsewhere")
	if gone, err := s.Gone(t.Context(), h); gone || err == nil {
		t.Errorf("without the directory above: %v, %v", gone, err)
	}
	s.mkdir("/locks") // the mount point
	s.gone(h, false)
	s.mkdir("/locks/a")
	s.gone(h, false)
	s.rmdir("/locks/a")
	s.rmdir("/locks")
	s.rename("/elsewhere", "/locks")
	s.gone(h, false)
	s.fs.open = func(string) error { return syscall.EACCES }
	s.rmdir("/locks/a")
	if gone, err := s.Gone(t.Context(), h); gone || !errors.Is(err, syscall.EACCES) {
		t.Errorf("unreadable: %v, %v", gone, err)
	}
	s.fs.open = nil
	s.gone(h, true)
}

// hang makes a directory hang as a network mount does, until answer is closed. It counts the calls that hang.
func (s *scene) hang(dir string) (calls *atomic.Int32, answer chan struct{}) {
	calls, answer = new(atomic.Int32), make(chan struct{})
	s.fs.open = func(name string) error {
		if strings.HasPrefix(name, dir) {
			calls.Add(1)
			<-answer
		}
		return nil
	}
	return calls, answer
}

func TestGoneReturnsWithItsContextWhileAMountHangs(t *testing.T) {
	s := newScene(t)
	h := s.acquire("/locks/a")
	calls, answer := s.hang("/locks")
	before := runtime.NumGoroutine()
	for range 50 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		if gone, err := s.Gone(ctx, h); gone || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, %v", gone, err)
		}
		cancel()
	}
	if n := calls.Load(); n == 0 || n > 16 {
		t.Errorf("%d looks hang", n)
	}
	// The goroutine of a context's timer may end a moment after the call.
	more := func() int { return runtime.NumGoroutine() - before }
	for range 1000 {
		if more() <= 16 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if n := more(); n > 16 {
		t.Errorf("%d goroutines more", n)
	}
	close(answer)
}

// watch runs Watch in a bubble of synctest.
func (s *scene) watch() (events chan lock.Name) {
	ctx, cancel := context.WithCancel(context.Background())
	events = make(chan lock.Name, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Watch(ctx, s.holds, func(h lock.Hold) {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.held, h.Name)
			events <- h.Name
		})
	}()
	s.Cleanup(func() { cancel(); <-done })
	return events
}

func wantGone(t *testing.T, events chan lock.Name, n int) {
	t.Helper()
	synctest.Wait()
	if got := len(events); got != n {
		t.Errorf("%d were reported, want %d", got, n)
	}
	for range len(events) {
		<-events
	}
}

func TestWatchReportsARemovedDirectoryWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		for i := range 5 {
			s.acquire(lock.Name(fmt.Sprintf("/locks/%d", i)))
		}
		s.record(lock.Hold{Name: "/locks/none"})
		events := s.watch()
		time.Sleep(time.Second)
		wantGone(t, events, 0)
		s.rmdir("/locks/1")
		s.rmdir("/locks/3")
		time.Sleep(time.Second)
		wantGone(t, events, 2)
		time.Sleep(time.Minute)
		wantGone(t, events, 0)
	})
}

// With many locks a turn takes several rounds.
func TestWatchLooksAtManyLocksInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		const n = 2000
		for i := range n {
			name := fmt.Sprintf("/locks/%d", i)
			s.acquire(lock.Name(name))
			s.rename(name, fmt.Sprintf("/%d", i))
		}
		events := s.watch()
		noticed := 0
		go func() {
			for range events {
				noticed++
			}
		}()
		for second, want := range []int{800, 1600, n} {
			time.Sleep(800 * time.Millisecond)
			if synctest.Wait(); noticed != want {
				t.Errorf("%d reported after round %d, want %d", noticed, second+1, want)
			}
		}
		close(events)
	})
}

// Locks below a mount that hangs delay the looks at others by a second each, and keep at most 16 goroutines.
func TestAMountThatHangsDelaysOtherLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.mkdir("/hung")
		s.acquire("/hung/a_lock")
		s.acquire("/locks/a")
		calls, answer := s.hang("/hung")
		events := s.watch()
		s.rmdir("/locks/a")
		time.Sleep(4 * time.Second)
		wantGone(t, events, 1)
		time.Sleep(time.Minute)
		if n := calls.Load(); n > 16 {
			t.Errorf("%d looks hang", n)
		}
		close(answer)
		s.rmdir("/hung/a_lock")
		time.Sleep(time.Second)
		wantGone(t, events, 1)
	})
}
