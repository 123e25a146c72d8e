package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
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
	id, err := identify(s.tree, lock.Name(name))
	if err != nil {
		s.Fatal(err)
	}
	return id
}

// mkdirUnlike makes a directory that can be told from another one, also where the file system tells no generations.
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
