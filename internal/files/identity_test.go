package files

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func TestIdentityTellsDirectoriesOfOneClockTickApart(t *testing.T) {
	t.Run("on the disk of temporary files", func(t *testing.T) { identityTells(t, serve(t, Options{})) })
	t.Run("in memory", func(t *testing.T) { identityTells(t, serveInMemory(t)) })
}

// serveInMemory serves a tree that is in a tmpfs.
func serveInMemory(t *testing.T) *served {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &st); err != nil || int64(st.Type) != unix.TMPFS_MAGIC {
		t.Skip("no tmpfs here", err)
	}
	root, err := os.MkdirTemp("/dev/shm", "files-")
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	s := &served{t: t, root: root, state: t.TempDir()}
	s.open(Options{})
	return s
}

func identityTells(t *testing.T, s *served) {
	type id struct {
		inode      uint64
		birth      int64
		generation uint32
	}
	seen := make(map[id]bool)
	births := make(map[id]bool)
	for range 200 {
		if err := s.Mkdir("/x_lock", 0o755); err != nil {
			t.Fatal(err)
		}
		inode, birth, generation, err := s.Identity("/x_lock")
		if err != nil {
			t.Fatal(err)
		}
		if generation == 0 && !s.isOf(speciesNumbering) {
			t.Skip("the file system tells no generations")
		}
		if again := (id{inode, birth, generation}); seen[again] {
			t.Errorf("%+v came twice", again)
		} else {
			seen[again] = true
		}
		births[id{inode, birth, 0}] = true
		if _, _, again, err := s.Identity("/x_lock"); err != nil || again != generation {
			t.Errorf("generation %d, then %d, %v", generation, again, err)
		}
		if err := s.RemoveDir("/x_lock"); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d by inode and birth", len(births))
}

// isOf reports whether the tree's file system is one of that species.
func (s *served) isOf(k species) bool {
	for _, is := range s.sys.devices.species {
		return is == k
	}
	return false
}

func TestListsSayWhatSingleLooksSay(t *testing.T) {
	s := serve(t, Options{})
	var want []string
	for i := range 300 { // more than one buffer of getdents64
		name := fmt.Sprintf("%0100d", i)
		want = append(want, name)
		s.mkdir("/d/" + name)
	}
	s.mkdir("/d/" + want[7] + "/within")
	s.put("/d/file", "")
	s.link("file", "/d/link")
	s.link(want[0], "/d/link-to-a-directory")
	names, entries, err := s.Subdirectories("/d")
	slices.Sort(names)
	if err != nil || entries != 303 || !slices.Equal(names, want) {
		t.Fatalf("%d names, %d entries, %v", len(names), entries, err)
	}
	asked := append([]string{"file", "link-to-a-directory", "missing"}, names...)
	var got []string
	err = s.Identities("/d", asked, func(i int, inode uint64, birth int64, generation uint32, leaf bool) {
		got = append(got, asked[i])
		wantInode, wantBirth, wantGeneration, err := s.Identity("/d/" + asked[i])
		if err != nil || inode != wantInode || birth != wantBirth || generation != wantGeneration {
			t.Errorf("%s: %d %d %d, want %d %d %d, %v", asked[i], inode, birth, generation, wantInode, wantBirth, wantGeneration, err)
		}
		if leaf && asked[i] == want[7] {
			t.Errorf("%s has a directory in it", asked[i])
		}
	})
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%d names, %v", len(got), err)
	}
}

func TestAFileSystemThatIsNotKnownIsNotAskedForGenerations(t *testing.T) {
	s := serve(t, Options{})
	s.mkdir("/x_lock")
	look := func() identity {
		id, err := s.sys.identity(s.rootfd, "x_lock")
		if err != nil || !id.directory || id.inode == 0 {
			t.Errorf("%+v, %v", id, err)
		}
		return id
	}
	first := look()
	for device, kind := range s.sys.devices.species {
		if want := kind >= speciesCounting; first.leaf != want {
			t.Errorf("leaf: %v, want %v", first.leaf, want)
		}
		s.sys.devices.species[device] = speciesOther
	}
	if id := look(); id.generation != 0 || id.leaf {
		t.Errorf("%+v", id)
	}
	proc, err := unix.Open("/proc/self", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skip(err)
	}
	defer unix.Close(proc)
	st, err := s.sys.statx(proc, "fd")
	if err != nil {
		t.Fatal(err)
	}
	if k := s.sys.devices.of(proc, "fd", &st); k != speciesOther {
		t.Errorf("proc is a %d", k)
	}
}
