package hostdir

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/afero"
	"go.uber.org/goleak"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/journal"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hostTree is a served tree on a real disk, as a program on the host sees it. before, if set, is called ahead of
// what makes or looks, and may fail it.
type hostTree struct {
	afero.Fs
	root   string
	before func(op, name string) error
}

var _ Directories = (*hostTree)(nil)

func newHostTree(root string) *hostTree {
	return &hostTree{Fs: afero.NewBasePathFs(afero.NewOsFs(), root), root: root}
}

func (h *hostTree) real(name string) string { return filepath.Join(h.root, name) }

func (h *hostTree) fault(op, name string) error {
	if h.before == nil {
		return nil
	}
	return h.before(op, name)
}

func (h *hostTree) Mkdir(name string, perm fs.FileMode) error {
	if err := h.fault("mkdir", name); err != nil {
		return err
	}
	return os.Mkdir(h.real(name), perm)
}

func (h *hostTree) RemoveDir(name string) error {
	if info, err := os.Lstat(h.real(name)); err == nil && !info.IsDir() {
		return fs.ErrInvalid
	}
	return os.Remove(h.real(name))
}

func (h *hostTree) Lstat(name string) (fs.FileInfo, error) {
	if err := h.fault("lstat", name); err != nil {
		return nil, err
	}
	info, err := os.Lstat(h.real(name))
	if err != nil {
		return nil, err
	}
	return identified{info, h.real(name)}, nil
}

// Open is that of a directory.
func (h *hostTree) Open(name string) (afero.File, error) {
	if err := h.fault("open", name); err != nil {
		return nil, err
	}
	f, err := h.Fs.Open(name)
	return identifiedDir{f, h.real(name)}, err
}

type identifiedDir struct {
	afero.File
	path string
}

func (d identifiedDir) Readdir(n int) ([]fs.FileInfo, error) {
	infos, err := d.File.Readdir(n)
	for i, info := range infos {
		infos[i] = identified{info, filepath.Join(d.path, info.Name())}
	}
	return infos, err
}

func (h *hostTree) Aside(name, _, _ string, _ uint64) (string, error) {
	if err := os.MkdirAll(h.real("/.aside"), 0o755); err != nil {
		return "", err
	}
	to := "/.aside/" + filepath.Base(name)
	return to, os.Rename(h.real(name), h.real(to))
}

// testRules make locks of everything that ends in _lock or lies below /locks.
type testRules struct {
	roots []lock.Name
	none  bool // or of nothing
}

func (r testRules) Roots() []lock.Name { return r.roots }

func (r testRules) For(name lock.Name) (lock.Rule, bool) {
	rule := lock.Rule{Match: "test", MaxAge: 10 * time.Minute}
	return rule, !r.none && strings.HasSuffix(string(name), "_lock") || name.Within("/locks") && name != "/locks"
}

// scene is a state directory and a served tree with the stores that are opened on them.
type scene struct {
	locktest.Moves
	tree  *hostTree
	fs    Directories // nil: tree
	state string
	clock lock.Clock
	rules Rules
	stop  func() // closes what the last open opened, as the end of the process does
}

func newScene(t testing.TB) *scene {
	dir := t.TempDir()
	clock := lock.NewSystemClock()
	s := &scene{
		Moves: locktest.Moves{TB: t, Clock: clock}, tree: newHostTree(filepath.Join(dir, "files")), state: filepath.Join(dir, "state"),
		clock: clock, rules: testRules{}, stop: func() {},
	}
	if err := os.Mkdir(s.tree.root, 0o755); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *scene) open() (*Store, error) {
	inner, err := journal.Open(journal.Options{Dir: s.state, Clock: s.clock})
	if err != nil {
		return nil, err
	}
	s.stop = func() { inner.Close() }
	o := Options{Inner: inner, FS: s.tree, Clock: s.clock, Rules: s.rules}
	if s.fs != nil {
		o.FS = s.fs
	}
	store, err := Open(context.Background(), o)
	if err != nil {
		s.stop()
		return nil, err
	}
	s.stop = func() { store.Close(); inner.Close() }
	return store, nil
}

func (s *scene) mustOpen() *Store {
	s.Helper()
	store, err := s.open()
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(s.stop)
	return store
}

// restart ends the process, as a kill does, and starts another one.
func (s *scene) restart() *Store {
	s.Helper()
	s.stop()
	return s.mustOpen()
}

func (s *scene) mkdir(name string) {
	s.Helper()
	if err := os.Mkdir(s.tree.real(name), 0o755); err != nil {
		s.Fatal(err)
	}
}

func (s *scene) rmdir(name string) {
	s.Helper()
	if err := os.Remove(s.tree.real(name)); err != nil {
		s.Fatal(err)
	}
}

func (s *scene) write(name string) {
	s.Helper()
	if err := os.WriteFile(s.tree.real(name), []byte("x"), 0o644); err != nil {
		s.Fatal(err)
	}
}

func (s *scene) exists(name string) bool {
	_, err := os.Lstat(s.tree.real(name))
	return err == nil
}

// identity is that of a directory, zero if there is none.
func (s *scene) identity(name string) lock.DirectoryID {
	seen, _ := tree{s.tree}.look(lock.Name(name))
	return seen.id
}

// tick waits for the next tick of the file system's clock: made within one tick two directories of one inode cannot be told apart.
func (s *scene) tick() {
	s.Helper()
	first := filepath.Join(s.TempDir(), "first")
	if err := os.WriteFile(first, nil, 0o600); err != nil {
		s.Fatal(err)
	}
	made, err := os.Stat(first)
	for err == nil {
		var now fs.FileInfo
		if err = os.WriteFile(first+".now", []byte("x"), 0o600); err == nil {
			now, err = os.Stat(first + ".now")
		}
		if err == nil && now.ModTime().After(made.ModTime()) {
			return
		}
	}
	s.Fatal(err)
}

// replace removes a directory on the host and makes it again.
func (s *scene) replace(name string) {
	s.Helper()
	s.tick()
	s.rmdir(name)
	s.mkdir(name)
}

// hasDirectory checks whether there is a directory of that name.
func (s *scene) hasDirectory(name string, want bool) {
	s.Helper()
	info, err := os.Lstat(s.tree.real(name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.Fatal(err)
	}
	if got := err == nil && info.IsDir(); got != want {
		s.Errorf("%s is a directory: %v, want %v", name, got, want)
	}
}
