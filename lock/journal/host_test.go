package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ftplockd/ftplockd/lock"
)

func TestTheDirectoryOfALockComesAndGoes(t *testing.T) {
	s := newScene(t)
	store := s.mustOpen()
	token := s.acquire(store, "/a_lock", "ada")
	s.hasDirectory("/a_lock", true)
	s.release(store, "/a_lock", token)
	s.hasDirectory("/a_lock", false)
}

func TestADirectoryMadeOnTheHostIsTheHosts(t *testing.T) {
	s := newScene(t)
	store := s.mustOpen()
	s.mkdir("/a_lock")
	made := time.Now().Add(-3 * time.Minute).Truncate(time.Second)
	if err := os.Chtimes(s.tree.real("/a_lock"), made, made); err != nil {
		t.Fatal(err)
	}
	_, err := s.commit(store, "/a_lock", 0, s.hold("ada"))
	record := s.conflict(err, lock.HostAccount)
	held := record.Holds[0]
	if !held.Host() || !held.Acquired.Wall.Equal(made) || held.Rule.Match != "test" || held.Token == 0 || held.Token != record.Revision {
		t.Errorf("got %+v, want one since %v under the rule of the name", held, made)
	}
	if age := since(held.Acquired, s.clock.Now()); age < 3*time.Minute || age > 4*time.Minute {
		t.Errorf("it is %v old", age)
	}
	s.release(store, "/a_lock", record.Revision) // as the reaper does
	s.hasDirectory("/a_lock", false)
	s.acquire(store, "/a_lock", "ada")
}

func TestADirectoryMadeBetweenTheLookAndTheMkdirIsTheHosts(t *testing.T) {
	s := newScene(t)
	store := s.mustOpen()
	s.tree.before = func(op, name string) error {
		if op == "mkdir" {
			s.mkdir(name)
		}
		return nil
	}
	_, err := s.commit(store, "/a_lock", 0, s.hold("ada"))
	s.tree.before = nil
	s.conflict(err, lock.HostAccount)
	s.crash(store)
	store = s.mustOpen()
	record := s.heldBy(store, "/a_lock", lock.HostAccount)
	var causes []lock.Cause
	for entry, err := range History(s.state, "/a_lock") {
		if err != nil {
			t.Fatal(err)
		}
		causes = append(causes, entry.Cause)
	}
	if got, want := fmt.Sprint(causes), "[acquire undo host-made]"; got != want {
		t.Errorf("history %v, want %v", got, want)
	}
	s.release(store, "/a_lock", record.Revision)
}

func TestMkdirFailures(t *testing.T) {
	cases := []struct {
		name  string
		fault error
		also  func(s *scene)
		want  error
	}{
		{"a file appears", fs.ErrExist, func(s *scene) { s.write("/d/a_lock") }, lock.ErrNotDirectory},
		{"something appears and goes", fs.ErrExist, nil, lock.ErrConflict},
		{"the parent goes", syscall.ENOENT, nil, lock.ErrNoParent},
		{"the parent becomes a file", syscall.ENOTDIR, nil, lock.ErrNoParent},
		{"the disk is full", syscall.ENOSPC, nil, syscall.ENOSPC},
		{"not allowed", syscall.EACCES, nil, fs.ErrPermission},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(t)
			s.mkdir("/d")
			store := s.mustOpen()
			s.tree.before = func(op, name string) error {
				if op != "mkdir" {
					return nil
				}
				if c.also != nil {
					c.also(s)
				}
				return &fs.PathError{Op: op, Path: s.tree.real(name), Err: c.fault}
			}
			_, err := s.commit(store, "/d/a_lock", 0, s.hold("ada"))
			if !errors.Is(err, c.want) || errors.Is(err, lock.ErrUncertain) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			s.tree.before = nil
			s.heldBy(store, "/d/a_lock", "")
			s.crash(store)
			s.heldBy(s.mustOpen(), "/d/a_lock", "")
		})
	}
}

func TestAcquiringInVainDoesNotFillTheJournal(t *testing.T) {
	s := newScene(t)
	store := s.mustOpen()
	s.write("/file_lock")
	before := s.journal()
	for name, want := range map[lock.Name]error{
		"/no/a_lock": lock.ErrNoParent, "/file_lock/a_lock": lock.ErrNoParent, "/file_lock": lock.ErrNotDirectory,
	} {
		if _, err := s.commit(store, name, 0, s.hold("ada")); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	if s.journal() != before {
		t.Error("it was written to")
	}
}

func TestALinkIsNoLock(t *testing.T) {
	s := newScene(t)
	s.mkdir("/real")
	if err := os.Symlink("real", s.tree.real("/a_lock")); err != nil {
		t.Fatal(err)
	}
	store := s.mustOpen()
	s.heldBy(store, "/a_lock", "")
	if _, err := s.commit(store, "/a_lock", 0, s.hold("ada")); !errors.Is(err, lock.ErrNotDirectory) {
		t.Errorf("got %v", err)
	}
}

func TestALockThatIsNotEmptyIsNotReleased(t *testing.T) {
	s := newScene(t)
	store := s.mustOpen()
	token := s.acquire(store, "/a_lock", "ada")
	s.write("/a_lock/file")
	if _, err := s.commit(store, "/a_lock", token); !errors.Is(err, lock.ErrNotEmpty) {
		t.Errorf("got %v", err)
	}
	if got := s.heldBy(store, "/a_lock", "ada"); got.Revision != token {
		t.Errorf("revision %d, want %d", got.Revision, token)
	}
	if !s.exists("/a_lock/file") {
		t.Error("the file is gone")
	}
}

func TestReleaseOfALockWhoseDirectoryIsGone(t *testing.T) {
	for _, file := range []bool{false, true} {
		s := newScene(t)
		store := s.mustOpen()
		token := s.acquire(store, "/a_lock", "ada")
		s.rmdir("/a_lock")
		if file {
			s.write("/a_lock")
		}
		s.release(store, "/a_lock", token)
		s.heldBy(store, "/a_lock", "")
		if s.exists("/a_lock") != file {
			t.Errorf("the file that took its place is gone")
		}
	}
}

func TestAReleaseNeverRemovesTheHostsDirectory(t *testing.T) {
	s := newScene(t)
	store := s.mustOpen()
	token := s.acquire(store, "/a_lock", "ada")
	s.replaceOnHost("/a_lock")
	_, err := s.commit(store, "/a_lock", token)
	record := s.conflict(err, lock.HostAccount)
	s.hasDirectory("/a_lock", true)
	if record.Revision <= token {
		t.Errorf("revision %d after %d", record.Revision, token)
	}
	s.heldBy(store, "/a_lock", lock.HostAccount)
}

// replaceOnHost removes a directory and makes another one.
func (s *scene) replaceOnHost(name string) {
	s.Helper()
	before := s.identity(name)
	s.rmdir(name)
	s.mkdirUnlike(name, before)
}

func (s *scene) identity(name string) lock.DirectoryID {
	s.Helper()
	inode, birth, err := s.tree.Identity(name)
	if err != nil {
		s.Fatal(err)
	}
	return lock.DirectoryID{Inode: inode, Birth: birth}
}

// mkdirUnlike makes a directory that can be told from another one: ext4 uses an inode number again at once, and births
// are as coarse as the kernel's clock ticks.
func (s *scene) mkdirUnlike(name string, other lock.DirectoryID) {
	s.Helper()
	for s.mkdir(name); s.identity(name) == other; s.mkdir(name) {
		s.rmdir(name)
	}
}

func TestAHandOverMeetsTheHost(t *testing.T) {
	s := newScene(t)
	store := s.mustOpen()
	token := s.acquire(store, "/a_lock", "ada")
	s.rmdir("/a_lock")
	_, err := s.commit(store, "/a_lock", token, s.hold("ben"))
	if record := s.conflict(err, ""); record.Revision != 0 {
		t.Errorf("revision %d of what is gone", record.Revision)
	}
	token = s.acquire(store, "/a_lock", "ben")
	s.replaceOnHost("/a_lock")
	_, err = s.commit(store, "/a_lock", token, s.hold("eve"))
	s.conflict(err, lock.HostAccount)
}

func TestHandOverAndRenewalRenewTheModificationTime(t *testing.T) {
	s := newScene(t)
	store := s.mustOpen()
	token := s.acquire(store, "/a_lock", "ada")
	modified := func() time.Time {
		info, err := os.Lstat(s.tree.real("/a_lock"))
		if err != nil {
			t.Fatal(err)
		}
		return info.ModTime()
	}
	age := func() {
		old := time.Now().Add(-time.Hour)
		if err := os.Chtimes(s.tree.real("/a_lock"), old, old); err != nil {
			t.Fatal(err)
		}
	}
	age()
	ben := s.hold("ben")
	token, err := s.commit(store, "/a_lock", token, ben)
	if err != nil {
		t.Fatal(err)
	}
	if got := modified(); !got.Equal(ben.Acquired.Wall) {
		t.Errorf("after the hand-over: %v, want %v", got, ben.Acquired.Wall)
	}
	age()
	held := s.heldBy(store, "/a_lock", "ben").Holds[0]
	held.Renewed = s.clock.Now()
	token, err = s.commit(store, "/a_lock", token, held, s.hold("eve"))
	if err != nil {
		t.Fatal(err)
	}
	if got := modified(); time.Since(got) > time.Minute {
		t.Errorf("after the renewal: %v", got)
	}
	age()
	if _, err := s.commit(store, "/a_lock", token, held); err != nil {
		t.Fatal(err)
	}
	if got := modified(); time.Since(got) < 30*time.Minute {
		t.Errorf("one of two left, and the time is %v", got)
	}
}

func TestAModificationTimeSetByHandIsNoHarm(t *testing.T) {
	for _, at := range []time.Time{time.Unix(-1e9, 0), time.Unix(1<<33, 0), time.Unix(253402300800, 0)} {
		s := newScene(t)
		store := s.mustOpen()
		s.mkdir("/a_lock")
		if err := os.Chtimes(s.tree.real("/a_lock"), at, at); err != nil {
			t.Fatal(err)
		}
		_, err := s.commit(store, "/a_lock", 0, s.hold("ada"))
		held := s.conflict(err, lock.HostAccount).Holds[0]
		if age := since(held.Acquired, s.clock.Now()); age < 0 {
			t.Errorf("%v: it is %v old", at, age)
		}
		s.crash(store)
		s.heldBy(s.mustOpen(), "/a_lock", lock.HostAccount)
	}
}

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
	s.eventually(func() bool { return s.records(store)["/locks/h"].Name != "" })
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
		if err := store.walk(t.Context(), 10); err != nil {
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
