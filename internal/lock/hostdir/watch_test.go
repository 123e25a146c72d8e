package hostdir_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

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
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if gone, err := s.Gone(ended, lock.Hold{Name: "/locks/none"}); gone || err != nil {
		t.Errorf("without a directory: %v, %v", gone, err)
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
		var noticed atomic.Int32
		go func() {
			for range events {
				noticed.Add(1)
			}
		}()
		for second, want := range []int32{800, 1600, n} {
			time.Sleep(800 * time.Millisecond)
			synctest.Wait()
			if got := noticed.Load(); got != want {
				t.Errorf("%d reported after round %d, want %d", got, second+1, want)
			}
		}
		close(events)
	})
}

// A directory that hangs delays the looks at others once, by a second, and keeps one goroutine. Its own locks are looked at when it answers.
func TestADirectoryThatHangsDelaysOtherLooksOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.mkdir("/hung")
		for i := range 5 {
			s.acquire(lock.Name(fmt.Sprintf("/hung/%d_lock", i)))
		}
		s.acquire("/locks/a")
		s.acquire("/locks/b")
		calls, answer := s.hang("/hung")
		events := s.watch()
		s.rmdir("/locks/a")
		time.Sleep(2 * time.Second)
		wantGone(t, events, 1)
		s.rmdir("/locks/b")
		time.Sleep(time.Second)
		wantGone(t, events, 1)
		time.Sleep(time.Minute)
		if n := calls.Load(); n != 1 {
			t.Errorf("%d looks at the directory that hangs", n)
		}
		s.rmdir("/hung/0_lock")
		close(answer)
		time.Sleep(time.Second)
		wantGone(t, events, 1)
		s.rmdir("/hung/1_lock")
		time.Sleep(time.Second)
		wantGone(t, events, 1)
	})
}

func TestWatchKeepsFewThreadsOfMountsThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		for i := range 40 {
			s.mkdir(fmt.Sprintf("/hung%d", i))
			s.acquire(lock.Name(fmt.Sprintf("/hung%d/a_lock", i)))
		}
		calls, answer := s.hang("/hung")
		s.watch()
		time.Sleep(2 * time.Minute)
		if n := calls.Load(); n != 16 {
			t.Errorf("%d looks hang", n)
		}
		close(answer)
	})
}

func TestWatchOpensADirectoryOnceForItsLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.mkdir("/dir")
		for i := range 100 {
			s.acquire(lock.Name(fmt.Sprintf("/locks/%d", i)))
			s.acquire(lock.Name(fmt.Sprintf("/dir/%d_lock", i)))
			s.acquire(lock.Name(fmt.Sprintf("/locks/%d/member", i)))
			s.rmdir(fmt.Sprintf("/locks/%d/member", i))
		}
		s.record(lock.Hold{Name: "/other/none"}) // without a directory
		opened := make(map[string]int)
		var mu sync.Mutex
		s.fs.open = func(name string) error {
			mu.Lock()
			defer mu.Unlock()
			opened[name]++
			return nil
		}
		events := s.watch()
		time.Sleep(time.Second)
		wantGone(t, events, 100)
		mu.Lock()
		defer mu.Unlock()
		if opened["/dir"] != 1 || opened["/locks"] != 1 || len(opened) != 102 {
			t.Errorf("opened %v", opened)
		}
	})
}
