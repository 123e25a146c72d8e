package hostdir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/journal"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

func TestADirectoryMadeBetweenTheLookAndTheMkdirIsTheHosts(t *testing.T) {
	s := newScene(t)
	store := s.mustOpen()
	s.tree.before = func(op, name string) error {
		if op == "mkdir" {
			s.mkdir(name)
		}
		return nil
	}
	_, err := s.Commit(store, "/a_lock", 0, s.Hold("ada"))
	s.tree.before = nil
	s.Conflict(err, lock.HostAccount)
	store = s.restart()
	record := s.HeldBy(store, "/a_lock", lock.HostAccount)
	var causes []lock.Cause
	for entry, err := range journal.History(s.state, "/a_lock") {
		if err != nil {
			t.Fatal(err)
		}
		causes = append(causes, entry.Cause)
	}
	if got, want := fmt.Sprint(causes), "[acquire undo host-made]"; got != want {
		t.Errorf("history %v, want %v", got, want)
	}
	s.Release(store, "/a_lock", record.Revision)
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
			_, err := s.Commit(store, "/d/a_lock", 0, s.Hold("ada"))
			if !errors.Is(err, c.want) || errors.Is(err, lock.ErrUncertain) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			s.tree.before = nil
			s.HeldBy(store, "/d/a_lock", "")
			s.HeldBy(s.restart(), "/d/a_lock", "")
		})
	}
}

func TestReleaseOfALockWhoseDirectoryIsGone(t *testing.T) {
	for _, file := range []bool{false, true} {
		s := newScene(t)
		store := s.mustOpen()
		token := s.Acquire(store, "/a_lock", "ada")
		s.rmdir("/a_lock")
		if file {
			s.write("/a_lock")
		}
		s.Release(store, "/a_lock", token)
		s.HeldBy(store, "/a_lock", "")
		if s.exists("/a_lock") != file {
			t.Errorf("the file that took its place is gone")
		}
	}
}

func TestAReleaseNeverRemovesTheHostsDirectory(t *testing.T) {
	s := newScene(t)
	store := s.mustOpen()
	token := s.Acquire(store, "/a_lock", "ada")
	s.replace("/a_lock")
	_, err := s.Commit(store, "/a_lock", token)
	record := s.Conflict(err, lock.HostAccount)
	s.hasDirectory("/a_lock", true)
	if record.Revision <= token {
		t.Errorf("revision %d after %d", record.Revision, token)
	}
	s.HeldBy(store, "/a_lock", lock.HostAccount)
}

func TestAHandOverMeetsTheHost(t *testing.T) {
	s := newScene(t)
	store := s.mustOpen()
	token := s.Acquire(store, "/a_lock", "ada")
	s.rmdir("/a_lock")
	_, err := s.Commit(store, "/a_lock", token, s.Hold("ben"))
	if record := s.Conflict(err, ""); record.Revision != 0 {
		t.Errorf("revision %d of what is gone", record.Revision)
	}
	token = s.Acquire(store, "/a_lock", "ben")
	s.replace("/a_lock")
	_, err = s.Commit(store, "/a_lock", token, s.Hold("eve"))
	s.Conflict(err, lock.HostAccount)
}

// Such a lock is as old as its directory says, where that can be.
func TestADirectoryMadeOnTheHostIsTheHosts(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	for _, c := range []struct{ modified, since time.Time }{
		{now.Add(-3 * time.Minute), now.Add(-3 * time.Minute)},
		{time.Unix(-1e9, 0), time.Unix(0, 0)}, // set by hand
		{time.Unix(1<<33, 0), now},
	} {
		s := newScene(t)
		store := s.mustOpen()
		s.mkdir("/a_lock")
		if err := os.Chtimes(s.tree.real("/a_lock"), c.modified, c.modified); err != nil {
			t.Fatal(err)
		}
		_, err := s.Commit(store, "/a_lock", 0, s.Hold("ada"))
		record := s.Conflict(err, lock.HostAccount)
		held := record.Holds[0]
		if !held.Host() || held.Rule.Match != "test" || held.Token == 0 || held.Token != record.Revision {
			t.Errorf("got %+v", held)
		}
		age := s.clock.Now().Boot - held.Acquired.Boot
		if wrong := time.Since(c.since) - age; wrong.Abs() > time.Minute || (time.Since(held.Acquired.Wall)-age).Abs() > time.Minute {
			t.Errorf("of %v: %v old, since %v", c.modified, age, held.Acquired.Wall)
		}
		store = s.restart()
		s.HeldBy(store, "/a_lock", lock.HostAccount)
		s.Release(store, "/a_lock", record.Revision) // as the reaper does
		s.hasDirectory("/a_lock", false)
	}
}

// releasing is an inner store that calls a function before it records a release, and fails if that does.
type releasing struct {
	Inner
	first func() error
}

func (r releasing) Commit(ctx context.Context, change lock.Change) (lock.Token, error) {
	if len(change.Holds) == 0 {
		if err := r.first(); err != nil {
			return 0, err
		}
	}
	return r.Inner.Commit(ctx, change)
}

func TestALockWhoseReleaseCannotBeRecordedHasItsDirectory(t *testing.T) {
	s := newScene(t)
	store := s.mustOpen()
	token := s.Acquire(store, "/a_lock", "ada")
	inner := store.inner
	store.inner = releasing{inner, func() error { return fmt.Errorf("%w: %w", lock.ErrUnrecorded, syscall.ENOSPC) }}
	if _, err := s.Commit(store, "/a_lock", token); !errors.Is(err, lock.ErrUnrecorded) {
		t.Errorf("got %v", err)
	}
	store.inner = inner
	s.HeldBy(store, "/a_lock", "ada")
	s.hasDirectory("/a_lock", true)
	store.check(t.Context(), "/a_lock") // takes it for no deed of the host
	s.HeldBy(store, "/a_lock", "ada")
	store = s.restart()
	s.HeldBy(store, "/a_lock", "ada")
	s.Release(store, "/a_lock", token)
}

func TestWhatIsInALockThatIsTakenAwayIsMovedAside(t *testing.T) {
	s := newScene(t)
	store := s.mustOpen()
	end := func(name lock.Name, revision lock.Token, cause lock.Cause) error {
		_, err := store.Commit(t.Context(), lock.Change{Name: name, If: revision, Cause: cause, By: locktest.Ada, Note: "because"})
		return err
	}
	token := s.Acquire(store, "/a_lock", "ada")
	s.write("/a_lock/file")
	if err := end("/a_lock", token, lock.CauseRelease); !errors.Is(err, lock.ErrNotEmpty) {
		t.Errorf("a release: %v", err)
	}
	if got := s.HeldBy(store, "/a_lock", "ada"); got.Revision != token || !s.exists("/a_lock/file") {
		t.Errorf("after a release that was refused: %+v", got)
	}
	if err := end("/a_lock", token, lock.CauseExpire); err != nil {
		t.Fatal(err)
	}
	next := s.Acquire(store, "/a_lock", "ben") // at once
	if !s.exists("/.aside/a_lock/file") || s.exists("/a_lock/file") {
		t.Error("the file is somewhere else")
	}
	s.write("/a_lock/file")
	if err := os.RemoveAll(s.tree.real("/.aside")); err != nil {
		t.Fatal(err)
	}
	s.write("/.aside") // now nothing can be moved there
	if err := end("/a_lock", next, lock.CauseExpire); err == nil || errors.Is(err, lock.ErrConflict) {
		t.Errorf("what cannot be moved aside: %v", err)
	}
	s.HeldBy(store, "/a_lock", "ben")
}

func TestWhatTheHostPutsIntoItsOwnLockStays(t *testing.T) {
	s := newScene(t)
	s.mkdir("/a_lock")
	store := s.mustOpen()
	token := s.HeldBy(store, "/a_lock", lock.HostAccount).Revision
	s.write("/a_lock/file")
	if _, err := store.Commit(t.Context(), lock.Change{Name: "/a_lock", If: token, Cause: lock.CauseExpire}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s.HeldBy(store, "/a_lock", "")
		if !s.exists("/a_lock/file") {
			t.Error("it is gone")
		}
		if _, err := s.Commit(store, "/a_lock", 0, s.Hold("ada")); !errors.Is(err, lock.ErrOccupied) {
			t.Errorf("got %v", err)
		}
		store = s.restart()
	}
}
