package journal

import (
	"context"
	"errors"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/ftplockd/ftplockd/internal/lock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hostTree is a served tree on a real disk, as a program on the host sees it. before, if set, is called ahead of each
// operation, with the mutex released, and may fail it.
type hostTree struct {
	root   string
	before func(op, name string) error
}

var (
	_ Directories = (*hostTree)(nil)
	_ Identities  = (*hostTree)(nil)
	_ Lists       = (*hostTree)(nil)
)

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
	if err := h.fault("rmdir", name); err != nil {
		return err
	}
	if err := unix.Rmdir(h.real(name)); err != nil {
		return &fs.PathError{Op: "rmdir", Path: h.real(name), Err: err}
	}
	return nil
}

func (h *hostTree) Lstat(name string) (fs.FileInfo, error) {
	if err := h.fault("lstat", name); err != nil {
		return nil, err
	}
	return os.Lstat(h.real(name))
}

func (h *hostTree) ReadDir(name string) (infos []fs.FileInfo, err error) {
	entries, err := os.ReadDir(h.real(name))
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil {
			infos = append(infos, info)
		}
	}
	return infos, err
}

func (h *hostTree) Chtimes(name string, atime, mtime time.Time) error {
	if err := h.fault("chtimes", name); err != nil {
		return err
	}
	return os.Chtimes(h.real(name), atime, mtime)
}

func (h *hostTree) Identity(name string) (inode uint64, birth int64, generation uint32, err error) {
	inode, birth, generation, _, err = h.identity(name)
	return inode, birth, generation, err
}

func (h *hostTree) identity(name string) (inode uint64, birth int64, generation uint32, leaf bool, err error) {
	var stat unix.Statx_t
	const mask = unix.STATX_INO | unix.STATX_BTIME | unix.STATX_NLINK
	if err = unix.Statx(unix.AT_FDCWD, h.real(name), unix.AT_SYMLINK_NOFOLLOW, mask, &stat); err != nil {
		return 0, 0, 0, false, &fs.PathError{Op: "statx", Path: h.real(name), Err: err}
	}
	if stat.Mask&unix.STATX_BTIME != 0 {
		birth = stat.Btime.Sec*1e9 + int64(stat.Btime.Nsec)
	}
	if handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, h.real(name), 0); err == nil {
		generation = crc32.ChecksumIEEE(handle.Bytes())
	}
	return stat.Ino, birth, generation, stat.Nlink == 2, nil
}

func (h *hostTree) Subdirectories(name string) (names []string, entries int, err error) {
	list, err := os.ReadDir(h.real(name))
	for _, entry := range list {
		if entry.IsDir() {
			names = append(names, entry.Name())
		}
	}
	return names, len(list), err
}

func (h *hostTree) Identities(dir string, names []string, each func(int, uint64, int64, uint32, bool)) error {
	if err := h.fault("lstat", dir); err != nil {
		return err
	}
	for i, base := range names {
		if info, err := os.Lstat(h.real(filepath.Join(dir, base))); err != nil || !info.IsDir() {
			continue
		}
		if inode, birth, generation, leaf, err := h.identity(filepath.Join(dir, base)); err == nil {
			each(i, inode, birth, generation, leaf)
		}
	}
	return nil
}

// stepTree offers Steps, too, as the served tree does.
type stepTree struct{ *hostTree }

var _ Steps = stepTree{}

func (s stepTree) Vacant(name string) bool {
	_, err := s.Lstat(name)
	_, parentErr := os.ReadDir(filepath.Dir(s.real(name)))
	return errors.Is(err, fs.ErrNotExist) && parentErr == nil
}

func (s stepTree) MkdirIdentity(name string, perm fs.FileMode) (inode uint64, birth int64, generation uint32, err error) {
	if err := s.Mkdir(name, perm); err != nil {
		return 0, 0, 0, err
	}
	inode, birth, generation, _ = s.Identity(name)
	return inode, birth, generation, nil
}

func (s stepTree) RmdirIdentity(name string, inode uint64, birth int64, generation uint32) (same bool, err error) {
	i, b, g, err := s.Identity(name)
	if err != nil || i != inode || b != birth || g != generation {
		return false, nil
	}
	return true, s.RemoveDir(name)
}

// testClock is the system's wall clock with an offset, and a boot clock to go with it.
type testClock struct {
	mu     sync.Mutex
	offset time.Duration
	began  time.Time
}

func newClock() *testClock { return &testClock{began: time.Now().Add(-time.Hour)} }

func (c *testClock) Now() lock.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now().Add(c.offset)
	return lock.Instant{Wall: now, Boot: now.Sub(c.began), BootID: "00000000-0000-4000-8000-000000000001"}
}

func (c *testClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset += d
}

// scene is a state directory and a served tree with the stores that are opened on them.
type scene struct {
	testing.TB
	tree    *hostTree
	state   string
	clock   *testClock
	options func(*Options)
	step    func(string)
	wrap    func(journalFile) journalFile
}

func newScene(t testing.TB) *scene {
	dir := t.TempDir()
	s := &scene{TB: t, tree: &hostTree{root: filepath.Join(dir, "files")}, state: filepath.Join(dir, "state"), clock: newClock()}
	if err := os.Mkdir(s.tree.root, 0o755); err != nil {
		t.Fatal(err)
	}
	return s
}

// lockRule makes locks of everything that ends in _lock or lies below /locks.
func lockRule(name lock.Name) (lock.Rule, bool) {
	rule := lock.Rule{Match: "test", MaxAge: 10 * time.Minute}
	return rule, strings.HasSuffix(string(name), "_lock") || name.Within("/locks") && name != "/locks"
}

// sceneRoom is little, since stores are opened by the thousand.
const sceneRoom = 4096

func (s *scene) open() (*Store, error) {
	o := Options{Dir: s.state, FS: stepTree{s.tree}, Root: s.tree.root, Rules: lockRule, Clock: s.clock, Durable: true}
	o.hooks.step, o.hooks.wrap, o.hooks.room = s.step, s.wrap, sceneRoom
	if s.options != nil {
		s.options(&o)
	}
	return Open(context.Background(), o)
}

func (s *scene) mustOpen() *Store {
	s.Helper()
	store, err := s.open()
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { store.Close() })
	return store
}

// crash leaves the store as the end of its process does: nothing is written, all files are closed.
func (s *scene) crash(store *Store) {
	s.Helper()
	store.gate.Lock()
	defer store.gate.Unlock()
	if store.closed {
		return
	}
	store.closed = true
	if err := store.abandon(); err != nil {
		s.Fatal(err)
	}
}

func (s *scene) restart(store *Store) *Store {
	s.Helper()
	if err := store.Close(); err != nil {
		s.Fatal(err)
	}
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
	if err := unix.Rmdir(s.tree.real(name)); err != nil {
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

// journal returns the lines of the journal, without the room behind them.
func (s *scene) journal() string {
	s.Helper()
	b, err := os.ReadFile(stateDir(s.state).journal())
	if err != nil {
		s.Fatal(err)
	}
	return strings.TrimRight(string(b), "\x00")
}

var ada = lock.Owner{Account: "ada", Address: "192.0.2.1", Session: 7}

func (s *scene) hold(account string) lock.Hold {
	now := s.clock.Now()
	owner := ada
	owner.Account = account
	return lock.Hold{Owner: owner, Acquired: now, Renewed: now, Rule: lock.Rule{Match: "given", MaxAge: time.Minute}}
}

func (s *scene) commit(store *Store, name lock.Name, revision lock.Token, holds ...lock.Hold) (lock.Token, error) {
	cause := lock.CauseAcquire
	if len(holds) == 0 {
		cause = lock.CauseRelease
	}
	return store.Commit(context.Background(), lock.Change{Name: name, If: revision, Holds: holds, Cause: cause, By: ada})
}

func (s *scene) acquire(store *Store, name lock.Name, account string) lock.Token {
	s.Helper()
	token, err := s.commit(store, name, 0, s.hold(account))
	if err != nil {
		s.Fatalf("acquire %s: %v", name, err)
	}
	return token
}

func (s *scene) release(store *Store, name lock.Name, token lock.Token) {
	s.Helper()
	if _, err := s.commit(store, name, token); err != nil {
		s.Fatalf("release %s: %v", name, err)
	}
}

func (s *scene) records(store *Store) map[lock.Name]lock.Record {
	s.Helper()
	records := make(map[lock.Name]lock.Record)
	for record, err := range store.All(context.Background()) {
		if err != nil {
			s.Fatal(err)
		}
		records[record.Name] = record
	}
	return records
}

// heldBy checks who holds the name, "" for nobody, and returns the record.
func (s *scene) heldBy(store *Store, name lock.Name, account string) lock.Record {
	s.Helper()
	record := s.records(store)[name]
	got := ""
	if len(record.Holds) > 0 {
		got = record.Holds[0].Owner.Account
	}
	if got != account {
		s.Errorf("%s is held by %q, want %q", name, got, account)
	}
	return record
}

// conflict checks that the error is a conflict with a record held by account ("": by nobody).
func (s *scene) conflict(err error, account string) lock.Record {
	s.Helper()
	var conflict *lock.ConflictError
	if !errors.As(err, &conflict) {
		s.Fatalf("got %v, want a conflict", err)
	}
	got := ""
	if len(conflict.Record.Holds) > 0 {
		got = conflict.Record.Holds[0].Owner.Account
	}
	if got != account {
		s.Errorf("the conflict's record is held by %q, want %q", got, account)
	}
	return conflict.Record
}

// watch follows the store in the background; next returns the next event of the name.
func (s *scene) watch(store *Store) (next func(name lock.Name) lock.Event) {
	ctx, cancel := context.WithCancel(context.Background())
	events := make(chan lock.Event, 100)
	var running sync.WaitGroup
	source := store.Watch(ctx)
	running.Go(func() {
		for event := range source {
			events <- event
		}
	})
	s.Cleanup(func() { cancel(); running.Wait() })
	return func(name lock.Name) lock.Event {
		s.Helper()
		timeout := time.After(time.Second)
		for {
			select {
			case event := <-events:
				if event.Record.Name == name {
					return event
				}
			case <-timeout:
				s.Fatalf("no event of %s within a second", name)
			}
		}
	}
}
