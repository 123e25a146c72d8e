package hostdir_test

import (
	"context"
	"errors"
	"io/fs"
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
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOpenRefusesMissingOptions(t *testing.T) {
	if _, err := hostdir.Open(hostdir.Options{}); err == nil {
		t.Error("Open accepts options without a file system")
	}
}

// clock is the machine's clock, whose boot time a test can move on.
type clock struct {
	lock.Clock
	mu    sync.Mutex
	ahead time.Duration
}

func (c *clock) Now() lock.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.Clock.Now()
	now.Boot += c.ahead
	return now
}

func (c *clock) sleep(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
}

// testRules make locks of everything that ends in _lock or lies below /locks; those that contain "marker" have no age.
type testRules struct{ roots []lock.Name }

func (r testRules) Roots() []lock.Name { return r.roots }

func (r testRules) For(n lock.Name) (lock.Rule, bool) {
	rule := lock.Rule{MaxAge: 10 * time.Minute}
	if strings.Contains(string(n), "marker") {
		rule.MaxAge = 0
	}
	return rule, strings.HasSuffix(string(n), "_lock") || n.Within("/locks") && n != "/locks"
}

// faulty is a served tree that a test can disturb.
type faulty struct {
	*files.Tree
	open   func(name string) error // ahead of Open and OpenDirectory
	aside  func(name string)       // ahead of Aside
	plain  bool                    // no mark is kept
	sticky bool                    // every directory has a mark
	mount  string                  // directories with names that begin so are on another device
}

func (f *faulty) Open(name string) (afero.File, error) {
	if f.open != nil {
		if err := f.open(name); err != nil {
			return nil, err
		}
	}
	return f.Tree.Open(name)
}

func (f *faulty) OpenDirectory(name string) (afero.File, error) {
	if f.open != nil {
		if err := f.open(name); err != nil {
			return nil, err
		}
	}
	file, err := f.Tree.OpenDirectory(name)
	d, ok := file.(hostdir.Directory)
	switch {
	case ok && f.plain:
		return unmarked{d}, nil
	case ok && f.sticky:
		return allSticky{d}, nil
	case ok && f.mount != "" && strings.HasPrefix(name, f.mount):
		return mounted{d}, nil
	}
	return file, err
}

func (f *faulty) IsFree(name string) bool { return f.open == nil && f.Tree.IsFree(name) }

func (f *faulty) Aside(name, of, by string, token uint64) (string, error) {
	if f.aside != nil {
		f.aside(name)
	}
	return f.Tree.Aside(name, of, by, token)
}

type unmarked struct{ hostdir.Directory }

func (u unmarked) Mkdir(base string, perm fs.FileMode) error {
	return u.Directory.Mkdir(base, perm.Perm())
}

// allSticky is a directory in which each directory looks marked.
type allSticky struct{ hostdir.Directory }

func (a allSticky) Lstat(base string) (fs.FileInfo, error) {
	info, err := a.Directory.Lstat(base)
	if err != nil {
		return nil, err
	}
	return isSticky{info}, nil
}

type isSticky struct{ fs.FileInfo }

func (i isSticky) Sys() any          { return i }
func (i isSticky) Mark() (bool, int) { return true, os.Getuid() }

// mounted is a directory on another device.
type mounted struct{ hostdir.Directory }

func (m mounted) Stat() (fs.FileInfo, error) {
	info, err := m.Directory.Stat()
	return onDevice{info}, err
}

type onDevice struct{ fs.FileInfo }

func (o onDevice) Sys() any       { return o }
func (o onDevice) Device() uint64 { return 1 << 40 }
func (o onDevice) Identity() (inode uint64, birth int64) {
	return o.FileInfo.Sys().(interface{ Identity() (uint64, int64) }).Identity()
}

// scene is a served tree on a real disk, as a program on the host sees it, and the Disk of a server that serves it.
type scene struct {
	testing.TB
	*hostdir.Disk
	root  string
	fs    *faulty
	clock *clock
	rules testRules
	off   bool // no directories

	mu   sync.Mutex
	held map[lock.Name]lock.Hold
	last lock.Token
}

func newScene(t testing.TB) *scene {
	dir := t.TempDir()
	s := &scene{TB: t, root: filepath.Join(dir, "files"), clock: &clock{Clock: lock.NewSystemClock()}, held: make(map[lock.Name]lock.Hold)}
	tree, err := files.Open(s.root, files.Options{State: filepath.Join(dir, "state")})
	s.check(err)
	t.Cleanup(func() { tree.Close() })
	s.fs = &faulty{Tree: tree}
	s.mkdir("/locks")
	s.restart()
	t.Cleanup(func() { s.Disk.Close() })
	return s
}

// restart ends the server, as a kill does, and starts another one, which knows the holds.
func (s *scene) restart() {
	s.Helper()
	if s.Disk != nil {
		s.Disk.Close()
	}
	s.Disk = s.opened()
}

func (s *scene) opened() *hostdir.Disk {
	s.Helper()
	d, err := hostdir.Open(hostdir.Options{FS: s.fs, Clock: s.clock, Rules: s.rules, Held: s.isHeld, Directories: !s.off})
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
	all := slices.Collect(maps.Values(s.held))
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

// acquire is what a table does for an MKD.
func (s *scene) acquire(n lock.Name) lock.Hold {
	s.Helper()
	id, err := s.Make(context.Background(), n)
	s.check(err)
	now := s.clock.Now()
	return s.record(lock.Hold{Name: n, Owner: lock.Owner{Account: "ada"}, Acquired: now, Renewed: now, Directory: id})
}

// end is what a table does when a hold ends.
func (s *scene) end(h lock.Hold, cause lock.Cause) (note string, err error) {
	note, err = s.Remove(context.Background(), h, cause)
	if err == nil || errors.Is(err, lock.ErrDirectoryGone) {
		s.mu.Lock()
		delete(s.held, h.Name)
		s.mu.Unlock()
	}
	return note, err
}

func (s *scene) release(h lock.Hold) {
	s.Helper()
	_, err := s.end(h, lock.CauseRelease)
	s.check(err)
}

// wantsGone releases a hold whose directory a program on the host removed.
func (s *scene) wantsGone(h lock.Hold) {
	s.Helper()
	if _, err := s.end(h, lock.CauseRelease); !errors.Is(err, lock.ErrDirectoryGone) {
		s.Errorf("%s: %v", h.Name, err)
	}
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

// replace removes a directory on the host and makes it again, in a later tick of the file system's clock: within one tick two directories
// of one inode cannot be told apart.
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

func (s *scene) age(name string, d time.Duration) {
	s.Helper()
	at := time.Now().Add(-d)
	s.check(os.Chtimes(s.real(name), at, at))
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

// marked reports whether a directory has the mark.
func (s *scene) marked(name string) bool {
	info, err := os.Lstat(s.real(name))
	return err == nil && info.Mode()&fs.ModeSticky != 0
}

// leftovers returns the names of what was moved aside.
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

func (s *scene) gone(h lock.Hold, want bool) {
	s.Helper()
	if got, err := s.Gone(s.Context(), h); got != want || err != nil {
		s.Errorf("%s is gone: %v, %v; want %v", h.Name, got, err, want)
	}
}

func (s *scene) mustSweep() { s.Helper(); s.check(s.Sweep(s.Context())) }
