package journal

import (
	"context"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

func TestWatchTellsWithinASecond(t *testing.T) {
	s := newScene(t)
	s.mkdir("/locks")
	store := s.mustOpen()
	next := s.watch(store)
	token := s.acquire(store, "/locks/a", "ada") // so that /locks is watched

	s.mkdir("/locks/b")
	made := next("/locks/b")
	if made.Cause != lock.CauseHostMade || !made.Record.Holds[0].Host() || made.Record.Revision <= token {
		t.Errorf("got %+v", made)
	}
	s.rmdir("/locks/a")
	gone := next("/locks/a")
	if gone.Cause != lock.CauseHostGone || len(gone.Record.Holds) != 0 || gone.Record.Revision <= made.Record.Revision {
		t.Errorf("got %+v", gone)
	}
	s.rmdir("/locks/b")
	if gone := next("/locks/b"); gone.Cause != lock.CauseHostGone {
		t.Errorf("got %+v", gone)
	}
	if got := s.records(store); len(got) != 0 {
		t.Errorf("still held: %v", got)
	}
	s.mkdir("/locks/c")
	next("/locks/c")
	s.crash(store)
	s.heldBy(s.mustOpen(), "/locks/c", lock.HostAccount)
}

func TestWatchTellsOfMoves(t *testing.T) {
	s := newScene(t)
	s.mkdir("/locks")
	s.mkdir("/other")
	store := s.mustOpen()
	next := s.watch(store)
	s.acquire(store, "/locks/a", "ada")
	s.acquire(store, "/locks/g", "ada")
	s.acquire(store, "/locks/g/m", "ben")
	if err := os.Rename(s.tree.real("/locks/a"), s.tree.real("/other/a")); err != nil {
		t.Fatal(err)
	}
	next("/locks/a")
	if err := os.Rename(s.tree.real("/locks/g"), s.tree.real("/locks/h")); err != nil {
		t.Fatal(err)
	}
	s.eventually(func() bool {
		records := s.records(store)
		return records["/locks/g"].Name == "" && records["/locks/g/m"].Name == ""
	})
	// /locks/h has something in it, so only that is a lock; no lock was made in it yet, so nobody watches it.
	if err := store.walk(t.Context(), 100, nil); err != nil {
		t.Fatal(err)
	}
	s.heldBy(store, "/locks/h/m", lock.HostAccount)
	s.heldBy(store, "/locks/h", "")
}

// eventually waits, for a second, until a program on the host has been noticed.
func (s *scene) eventually(f func() bool) {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for !f() {
		if !pause(ctx, time.Millisecond) {
			s.Fatal("not within a second")
		}
	}
}

func TestWatchTellsOfADirectoryPutInTheLocksPlace(t *testing.T) {
	s := newScene(t)
	store := s.mustOpen()
	next := s.watch(store)
	token := s.acquire(store, "/a_lock", "ada")
	s.replaceOnHost("/a_lock")
	for {
		event := next("/a_lock")
		if event.Record.Revision <= token {
			t.Fatalf("got %+v", event)
		}
		if event.Cause == lock.CauseHostMade {
			break
		}
	}
	s.heldBy(store, "/a_lock", lock.HostAccount)
}

func TestASecondWatchTakesTheWorkOver(t *testing.T) {
	s := newScene(t)
	store := s.mustOpen()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	first := store.Watch(ctx)
	go func() {
		defer close(done)
		for range first {
		}
	}()
	s.eventually(func() bool { return len(store.pump) == 1 })
	next := s.watch(store)
	s.acquire(store, "/a_lock", "ada")
	s.rmdir("/a_lock")
	next("/a_lock")
	cancel()
	<-done
	s.acquire(store, "/a_lock", "ada")
	s.rmdir("/a_lock")
	next("/a_lock")
}

func TestOtherDirectoriesAreNobodysLocks(t *testing.T) {
	s := newScene(t)
	s.mkdir("/locks")
	store := s.mustOpen()
	s.watch(store)
	s.acquire(store, "/a_lock", "ada")
	s.mkdir("/data")
	s.mkdir("/data/b_lock")
	s.write("/c_lock")
	token, err := store.Commit(t.Context(), lock.Change{Name: "/data", Cause: lock.CauseRelease})
	if err != nil || token == 0 {
		t.Errorf("a probe of what is no lock: %v", err)
	}
	_, err = store.Commit(t.Context(), lock.Change{Name: "/data/b_lock", Cause: lock.CauseRelease})
	s.conflict(err, lock.HostAccount) // a probe notices what is one
	if got := s.records(store); len(got) != 2 {
		t.Errorf("held: %v", got)
	}
}

// TestEachMinuteTheTreeIsSearched has no watches, so that only the rounds can notice.
func TestEachMinuteTheTreeIsSearched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.options = func(o *Options) { o.Root = "" }
		store := s.mustOpen()
		s.acquire(store, "/held_lock", "ada")
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan string, 10)
		events := store.Watch(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for event := range events {
				got <- string(event.Record.Name) + " " + string(event.Cause)
			}
		}()
		s.mkdir("/deep")
		s.mkdir("/deep/er")
		s.mkdir("/deep/er/a_lock")
		s.rmdir("/held_lock")
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if len(got) != 0 {
			t.Errorf("before the minute is over: %v", <-got)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		for _, want := range []string{"/held_lock host-removed", "/deep/er/a_lock host-made"} {
			if one := <-got; one != want {
				t.Errorf("got %s, want %s", one, want)
			}
		}
		cancel()
		<-done
		store.Close()
	})
}

func TestARoundIsBoundedAndTheNextGoesOn(t *testing.T) {
	s := newScene(t)
	s.options = func(o *Options) { o.Root = "" }
	store := s.mustOpen()
	for i := range 5 {
		s.mkdir(fmt.Sprintf("/%d", i))
		for j := range 5 {
			s.mkdir(fmt.Sprintf("/%d/%d_lock", i, j))
		}
	}
	found, rounds := 0, 0
	for ; found < 25 && rounds < 20; rounds++ {
		if err := store.walk(t.Context(), 10, nil); err != nil {
			t.Fatal(err)
		}
		now := len(s.records(store))
		if now-found > 15 {
			t.Errorf("%d found in one round", now-found)
		}
		found = now
	}
	if found != 25 || rounds < 2 {
		t.Errorf("%d found in %d rounds", found, rounds)
	}
	s.rmdir("/4/4_lock") // the last one
	for range 3 {
		s.heldBy(store, "/4/4_lock", lock.HostAccount)
		store.verify(t.Context(), 10)
	}
	s.heldBy(store, "/4/4_lock", "")
	s.rmdir("/0/0_lock")
	store.verify(t.Context(), 10) // from the beginning again
	s.heldBy(store, "/0/0_lock", "")
}

func TestLostNoticesAreMadeUpFor(t *testing.T) {
	s := newScene(t)
	s.mkdir("/locks")
	store := s.mustOpen()
	s.acquire(store, "/locks/a", "ada")
	s.mkdir("/locks/b")
	s.rmdir("/locks/a")
	store.rescan(t.Context())
	s.heldBy(store, "/locks/a", "")
	s.heldBy(store, "/locks/b", lock.HostAccount)
}

func TestWatchesAreCountedAndDropped(t *testing.T) {
	s := newScene(t)
	s.mkdir("/locks")
	store := s.mustOpen()
	watched := func() int {
		store.watched.mu.Lock()
		defer store.watched.mu.Unlock()
		return len(store.watched.names)
	}
	a, b := s.acquire(store, "/locks/a", "ada"), s.acquire(store, "/locks/b", "ada")
	g := s.acquire(store, "/g_lock", "ada")
	if got := watched(); got != 2 {
		t.Errorf("%d directories are watched, want / and /locks", got)
	}
	s.release(store, "/locks/a", a)
	s.release(store, "/g_lock", g)
	store.watched.sweep()
	if got := watched(); got != 1 {
		t.Errorf("%d directories are watched, want /locks", got)
	}
	s.release(store, "/locks/b", b)
	store.watched.sweep()
	if got := watched(); got != 0 {
		t.Errorf("%d directories are watched, want none", got)
	}
}
