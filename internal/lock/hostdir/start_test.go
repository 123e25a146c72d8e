package hostdir

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/journal"
)

func TestAHoldGetsItsDirectoryBack(t *testing.T) {
	s := newScene(t)
	s.mkdir("/locks")
	store := s.mustOpen()
	g := s.Acquire(store, "/locks/g", "ada")
	m := s.Acquire(store, "/locks/g/m", "ben")
	s.stop()
	s.rmdir("/locks/g/m")
	s.rmdir("/locks/g")
	store = s.mustOpen()
	s.hasDirectory("/locks/g/m", true)
	info, err := os.Lstat(s.tree.real("/locks/g/m"))
	if want := s.HeldBy(store, "/locks/g/m", "ben").Holds[0].Acquired.Wall; err != nil || !info.ModTime().Equal(want) {
		t.Errorf("the directory is of %v, want %v, when the lock was acquired", info.ModTime(), want)
	}
	s.Release(store, "/locks/g/m", m)
	s.Release(store, "/locks/g", g)
	s.hasDirectory("/locks/g", false)
}

func TestAHoldWhoseDirectoryCannotBeMadeStands(t *testing.T) {
	s := newScene(t)
	s.mkdir("/d")
	store := s.mustOpen()
	token := s.Acquire(store, "/d/a_lock", "ada")
	file := s.Acquire(store, "/file_lock", "ada")
	s.stop()
	s.rmdir("/d/a_lock")
	s.rmdir("/d")
	s.rmdir("/file_lock")
	s.write("/file_lock")
	store = s.mustOpen()
	s.HeldBy(store, "/d/a_lock", "ada")
	s.HeldBy(store, "/file_lock", "ada")
	store.look(t.Context(), new(turn)) // takes it for no deed of the host
	s.HeldBy(store, "/d/a_lock", "ada")
	s.Release(store, "/d/a_lock", token)
	s.Release(store, "/file_lock", file)
	if !s.exists("/file_lock") || s.exists("/d") {
		t.Error("the tree was changed")
	}
}

// bareTree does not tell which directory is which, as it is on systems other than Linux.
type bareTree struct{ *hostTree }

func (b bareTree) Lstat(name string) (fs.FileInfo, error) { return os.Lstat(b.real(name)) }

func TestWhileTheServerWasDown(t *testing.T) {
	hour := time.Now().Add(-time.Hour).Truncate(time.Second)
	cases := []struct {
		name string
		lock lock.Name
		host func(s *scene)
		want string
	}{
		{"nothing happened", "/a_lock", func(*scene) {}, "ada"},
		{"the host removed a lock", "/a_lock", func(s *scene) { s.rmdir("/a_lock") }, "ada"},
		{"the host replaced a lock", "/a_lock", func(s *scene) { s.replace("/a_lock") }, lock.HostAccount},
		{"the host made a lock", "/b_lock", func(s *scene) { s.mkdir("/b_lock") }, lock.HostAccount},
		{"the host made a lock long ago", "/b_lock", func(s *scene) {
			s.mkdir("/b_lock")
			if err := os.Chtimes(s.tree.real("/b_lock"), hour, hour); err != nil {
				s.Fatal(err)
			}
		}, lock.HostAccount},
		{"the host made something else", "/data", func(s *scene) { s.mkdir("/data") }, ""},
		{"the host made a file", "/b_lock", func(s *scene) { s.write("/b_lock") }, ""},
		{"the host took a released lock", "/released_lock", func(s *scene) { s.tick(); s.mkdir("/released_lock") }, lock.HostAccount},
		{"the host released its lock", "/host_lock", func(s *scene) { s.rmdir("/host_lock") }, ""},
		{"the host kept its lock", "/host_lock", func(*scene) {}, lock.HostAccount},
		{"the host has its lock anew", "/host_lock", func(s *scene) { s.replace("/host_lock") }, lock.HostAccount},
	}
	for i, c := range slices.Concat(cases, cases) {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(t)
			if i >= len(cases) {
				s.fs = bareTree{s.tree}
			}
			if i >= len(cases) && c.name == "the host replaced a lock" {
				c.want = "ada" // that cannot be seen
			}
			s.mkdir("/host_lock")
			store := s.mustOpen()
			s.Acquire(store, "/a_lock", "ada")
			token := s.Acquire(store, "/released_lock", "ben")
			s.Release(store, "/released_lock", token)
			before := s.Records(store)[c.lock].Revision
			s.stop()
			stood := s.identity(string(c.lock))
			c.host(s)
			again := s.identity(string(c.lock)) // zero if there is none
			existed := s.exists(string(c.lock)) || c.want == "ada"

			store = s.mustOpen()
			record := s.HeldBy(store, c.lock, c.want)
			if existed != s.exists(string(c.lock)) {
				t.Error("the host's work was undone, or the directory of a hold was not made again")
			}
			if stood == again && before != record.Revision {
				t.Errorf("revision %d, was %d", record.Revision, before)
			}
			if c.name == "the host made a lock long ago" && !record.Holds[0].Acquired.Wall.Equal(hour) {
				t.Errorf("held since %v", record.Holds[0].Acquired.Wall)
			}
			s.stop()
			s.HeldBy(s.mustOpen(), c.lock, c.want)
		})
	}
}

// shelving puts directories that are removed on a shelf, from which a loss of power may bring them back.
type shelving struct {
	*hostTree
	shelf string
}

func (s shelving) RemoveDir(name string) error {
	if entries, err := os.ReadDir(s.real(name)); err != nil || len(entries) > 0 {
		return s.hostTree.RemoveDir(name)
	}
	return os.Rename(s.real(name), s.shelf)
}

// A start that removes such a directory does not forget whose it was. With something in it, it stays and is nobody's.
func TestTheDirectoryOfAReleasedLockMayComeBackAgainAndAgain(t *testing.T) {
	s := newScene(t)
	shelf := filepath.Join(t.TempDir(), "shelf")
	s.fs = shelving{s.tree, shelf}
	store := s.mustOpen()
	s.Release(store, "/a_lock", s.Acquire(store, "/a_lock", "ada"))
	for _, full := range []bool{false, false, true} {
		s.stop()
		if err := os.Rename(shelf, s.tree.real("/a_lock")); err != nil {
			t.Fatal(err)
		}
		if full {
			s.write("/a_lock/file")
		}
		store = s.mustOpen()
		s.HeldBy(store, "/a_lock", "")
		s.hasDirectory("/a_lock", full)
	}
}

func TestWhoseDirectoryIsIt(t *testing.T) {
	at := time.Unix(1000, 0)
	id := func(inode uint64, birth int64) lock.DirectoryID { return lock.DirectoryID{Inode: inode, Birth: birth} }
	cases := []struct {
		name  string
		known lock.DirectoryID
		seen  lock.DirectoryID
		age   time.Duration // how long before the grant, or the release, it was modified
		ours  bool
	}{
		{"the same", id(5, 50), id(5, 50), -time.Hour, true},
		{"made before ours", id(5, 50), id(6, 49), -time.Hour, true},
		{"made before ours, the inode used again", id(5, 50), id(5, 49), -time.Hour, true},
		{"made after ours", id(5, 50), id(6, 51), time.Hour, false},
		{"made after ours, the inode used again", id(5, 50), id(5, 51), time.Hour, false},
		{"no births, another inode, older", id(5, 0), id(6, 0), time.Second, true},
		{"no births, another inode, younger", id(5, 0), id(6, 0), -time.Second, false},
	}
	for _, c := range cases {
		seen := sight{found: true, directory: true, id: c.seen, modified: at.Add(-c.age)}
		if got := seen.cameBack(c.known, at); got != c.ours {
			t.Errorf("%s: %v, want %v", c.name, got, c.ours)
		}
	}
}

func TestRootsSayWhereToLook(t *testing.T) {
	s := newScene(t)
	s.mkdir("/locks")
	s.mkdir("/locks/a")
	s.mkdir("/b_lock")
	s.rules = testRules{roots: []lock.Name{"/locks", "/missing"}}
	store := s.mustOpen()
	s.HeldBy(store, "/locks/a", lock.HostAccount)
	s.HeldBy(store, "/b_lock", "")
	store.SetRules(testRules{})
	if err := store.walk(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	s.HeldBy(store, "/b_lock", lock.HostAccount)
}

func TestReloadedRulesDecideWhatTheHostCanLock(t *testing.T) {
	s := newScene(t)
	s.rules = testRules{none: true}
	s.mkdir("/a_lock")
	store := s.mustOpen()
	s.HeldBy(store, "/a_lock", "")
	store.SetRules(testRules{})
	store.check(t.Context(), "/a_lock")
	s.HeldBy(store, "/a_lock", lock.HostAccount)
	store.SetRules(testRules{none: true})
	store = s.restart()
	if got := s.HeldBy(store, "/a_lock", lock.HostAccount); got.Holds[0].Rule.Match != "test" {
		t.Errorf("it lost its rule: %+v", got)
	}
}

// A server without directories leaves none behind that keeps everybody from a name, and nothing goes that is not a held lock's own.
func TestAServerWithoutDirectoriesLeavesNothingInTheWay(t *testing.T) {
	s := newScene(t)
	s.mkdir("/locks")
	store := s.mustOpen()
	for _, name := range []lock.Name{"/g_lock", "/g_lock/m_lock", "/full_lock", "/hosts_lock"} {
		s.Acquire(store, name, "ada")
	}
	s.write("/full_lock/file")
	s.stop()
	s.mkdir("/made_lock")
	store = s.mustOpen()
	s.HeldBy(store, "/made_lock", lock.HostAccount)
	s.stop()
	s.replace("/hosts_lock")
	inner, err := journal.Open(journal.Options{Dir: s.state, Clock: s.clock})
	if err != nil {
		t.Fatal(err)
	}
	if err := Leave(t.Context(), Options{Inner: inner, FS: s.tree, Clock: s.clock, Rules: s.rules}); err != nil {
		t.Error(err)
	}
	if record, err := inner.Get(t.Context(), "/made_lock"); err != nil || len(record.Holds) > 0 {
		t.Errorf("a lock of the host, which nobody can give back now: %+v, %v", record, err)
	}
	if err := inner.Close(); err != nil {
		t.Fatal(err)
	}
	s.hasDirectory("/made_lock", true)
	s.hasDirectory("/g_lock", false)
	s.hasDirectory("/hosts_lock", true)
	if !s.exists("/full_lock/file") {
		t.Error("a file in a lock is gone")
	}
	store = s.mustOpen()
	s.HeldBy(store, "/g_lock/m_lock", "ada")
	s.HeldBy(store, "/full_lock", "ada")
	s.hasDirectory("/g_lock/m_lock", true)
}
