package hostdir_test

import (
	"cmp"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/afero"
	"go.uber.org/goleak"

	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/hostdir"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testRules make each name that ends in _lock or lies below /locks a lock. A name that contains "marker" has no age.
type testRules struct{ roots []lock.Name }

func (r testRules) Roots() []lock.Name { return r.roots }

func (r testRules) For(n lock.Name) (lock.Rule, bool) {
	rule := lock.Rule{MaxAge: 10 * time.Minute}
	if strings.Contains(string(n), "marker") {
		rule.MaxAge = 0
	}
	return rule, strings.HasSuffix(string(n), "_lock") || n.Within("/locks") && n != "/locks"
}

// faulty is a served tree with faults.
type faulty struct {
	*files.Tree
	open   func(name string) error // called before Open and OpenDirectory
	aside  func(name string)       // called before Aside
	plain  bool                    // the file system keeps no mark
	sticky bool                    // every directory has a mark
	old    bool                    // as ext2: the file system records no times of birth, and reuses one inode
	lstat  error                   // what Lstat of a directory returns, unless it is nil
}

func (f *faulty) beforeOpen(name string) error {
	if f.open == nil {
		return nil
	}
	return f.open(name)
}

func (f *faulty) Open(name string) (afero.File, error) {
	if err := f.beforeOpen(name); err != nil {
		return nil, err
	}
	return f.Tree.Open(name)
}

func (f *faulty) OpenDirectory(name string) (afero.File, error) {
	if err := f.beforeOpen(name); err != nil {
		return nil, err
	}
	file, err := f.Tree.OpenDirectory(name)
	if err != nil {
		return nil, err
	}
	return faultyDirectory{file.(hostdir.Directory), f}, nil
}

func (f *faulty) IsFree(name string) bool { return f.open == nil && f.Tree.IsFree(name) }

func (f *faulty) Aside(name, by string, token uint64) (string, error) {
	if f.aside != nil {
		f.aside(name)
	}
	return f.Tree.Aside(name, by, token)
}

func (f *faulty) Stat(name string) (fs.FileInfo, error) { return f.info(f.Tree.Stat(name)) }

func (f *faulty) info(info fs.FileInfo, err error) (fs.FileInfo, error) {
	if err != nil {
		return nil, err
	}
	return faultyInfo{info, info.Sys().(system), f}, nil
}

type faultyDirectory struct {
	hostdir.Directory
	f *faulty
}

func (d faultyDirectory) Mkdir(base string, perm fs.FileMode) error {
	if d.f.plain {
		perm = perm.Perm()
	}
	return d.Directory.Mkdir(base, perm)
}

func (d faultyDirectory) Lstat(base string) (fs.FileInfo, error) {
	if d.f.lstat != nil {
		return nil, d.f.lstat
	}
	return d.f.info(d.Directory.Lstat(base))
}

func (d faultyDirectory) Readdir(n int) ([]fs.FileInfo, error) {
	infos, err := d.Directory.Readdir(n)
	for i, info := range infos {
		infos[i], _ = d.f.info(info, nil)
	}
	return infos, err
}

type system interface {
	Identity() (inode uint64, birth int64)
	Device() uint64
	Links() uint64
	Mark() (sticky bool, owner int)
}

// faultyInfo is the FileInfo and the system of a file.
type faultyInfo struct {
	fs.FileInfo
	system
	f *faulty
}

func (i faultyInfo) Sys() any { return i }

func (i faultyInfo) Identity() (inode uint64, birth int64) {
	if i.f.old {
		return 7, 0
	}
	return i.system.Identity()
}

func (i faultyInfo) Mark() (sticky bool, owner int) {
	if i.f.sticky {
		return true, os.Getuid()
	}
	return i.system.Mark()
}

// scene is a served tree on a real disk, and the Disk of a server.
type scene struct {
	testing.TB
	*hostdir.Disk
	root  string
	fs    *faulty
	clock *locktest.FakeClock
	rules testRules
	off   bool // no directories
	valid func() error
	log   *slog.Logger

	mu   sync.Mutex
	held map[lock.Name]lock.Hold
	last lock.Token
}

func newScene(t testing.TB) *scene {
	dir := t.TempDir()
	s := &scene{TB: t, root: filepath.Join(dir, "files"), clock: locktest.NewRunningClock(), held: make(map[lock.Name]lock.Hold)}
	tree, err := files.Open(s.root, files.Options{State: filepath.Join(dir, "state")})
	s.check(err)
	t.Cleanup(func() { tree.Close() })
	s.fs = &faulty{Tree: tree}
	s.mkdir("/locks")
	s.restart()
	return s
}

// restart ends the server, as a kill does, and starts another one with the same holds.
func (s *scene) restart() {
	s.Helper()
	s.Disk = s.opened()
}

func (s *scene) opened() *hostdir.Disk {
	s.Helper()
	d, err := hostdir.Open(hostdir.Options{FS: s.fs, Clock: s.clock, Rules: s.rules, Held: s.isHeld, Valid: s.valid, MakeDirectories: !s.off, Log: s.log})
	s.check(err)
	return d
}

func (s *scene) isHeld(n lock.Name) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.held[n]
	return ok
}

func (s *scene) holds(yield func(lock.Hold) bool) {
	s.mu.Lock()
	all := slices.SortedFunc(maps.Values(s.held), func(a, b lock.Hold) int { return cmp.Compare(a.Name, b.Name) }) // as the table's
	s.mu.Unlock()
	for _, h := range all {
		if !yield(h) {
			return
		}
	}
}

func (s *scene) record(h lock.Hold) lock.Hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.Token == 0 {
		s.last++
		h.Token = s.last
	}
	s.held[h.Name] = h
	return h
}

// acquire acquires a lock as a table does.
func (s *scene) acquire(n lock.Name) lock.Hold {
	s.Helper()
	id, err := s.Make(s.Context(), n)
	s.check(err)
	now := s.clock.Now()
	return s.record(lock.Hold{Name: n, Owner: lock.Owner{Account: "ada"}, Acquired: now, Renewed: now, Directory: id})
}

func (s *scene) release(h lock.Hold) {
	s.Helper()
	_, err := s.Remove(s.Context(), h, lock.CauseRelease)
	s.check(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, h.Name)
}

func (s *scene) check(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *scene) real(name string) string { return filepath.Join(s.root, name) }

func (s *scene) mkdir(name string)      { s.Helper(); s.check(os.Mkdir(s.real(name), 0o755)) }
func (s *scene) rmdir(name string)      { s.Helper(); s.check(os.Remove(s.real(name))) }
func (s *scene) write(name string)      { s.Helper(); s.check(os.WriteFile(s.real(name), nil, 0o644)) }
func (s *scene) rename(from, to string) { s.Helper(); s.check(os.Rename(s.real(from), s.real(to))) }

// replace removes a directory on the host and makes it again, in a later tick of the file system's clock. Within one tick both may
// have the same identity.
func (s *scene) replace(name string) {
	s.Helper()
	s.tick()
	s.rmdir(name)
	s.mkdir(name)
}

func (s *scene) tick() {
	s.Helper()
	first := filepath.Join(s.TempDir(), "first")
	s.check(os.WriteFile(first, nil, 0o600))
	made, err := os.Stat(first)
	for s.check(err); ; {
		s.check(os.WriteFile(first+".now", []byte("x"), 0o600))
		now, err := os.Stat(first + ".now")
		s.check(err)
		if now.ModTime().After(made.ModTime()) {
			return
		}
	}
}

// wants checks whether there is a directory of that name.
func (s *scene) wants(name string, want bool) {
	s.Helper()
	info, err := os.Lstat(s.real(name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.Fatal(err)
	}
	if got := err == nil && info.IsDir(); got != want {
		s.Errorf("%s is a directory: %v, want %v", name, got, want)
	}
}

// leftovers returns the names of the directories that were moved aside.
func (s *scene) leftovers() (names []string) {
	entries, err := os.ReadDir(s.real(files.Leftovers))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func (s *scene) mustSweep() { s.Helper(); s.check(s.Sweep(s.Context())) }
