package journal

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// faults are how the files of a journal fail. Like a disk, they have room for so many bytes if room is set.
type faults struct {
	write    func(b []byte) error // its error is returned before anything is written
	truncate error
	sync     func() error
	room     int64 // what is written behind it is refused, but for what lies before; 0: any
}

// faulty is a journalFile that fails when it is told to.
type faulty struct {
	journalFile
	*faults
}

func (f faulty) WriteAt(b []byte, offset int64) (int, error) {
	if f.write != nil {
		if err := f.write(b); err != nil {
			return 0, &os.PathError{Op: "write", Path: "/real/path", Err: err}
		}
	}
	if f.room > 0 && offset+int64(len(b)) > f.room {
		n, _ := f.journalFile.WriteAt(b[:max(0, f.room-offset)], offset)
		return n, &os.PathError{Op: "write", Path: "/real/path", Err: syscall.ENOSPC}
	}
	return f.journalFile.WriteAt(b, offset)
}

func (f faulty) Truncate(size int64) error {
	if f.truncate != nil {
		return f.truncate
	}
	return f.journalFile.Truncate(size)
}

func (f faulty) Sync() error {
	if f.sync != nil {
		if err := f.sync(); err != nil {
			return &os.PathError{Op: "fdatasync", Path: "/real/path", Err: err}
		}
	}
	return f.journalFile.Sync()
}

// faultyScene opens a store whose journal can be made to fail.
func faultyScene(t *testing.T) (*scene, *Store, *faults) {
	s, f := newScene(t), new(faults)
	s.wrap = func(real journalFile) journalFile { return faulty{real, f} }
	store := s.mustOpen()
	s.Acquire(store, "/old_lock", "ada")
	return s, store, f
}

// fill takes locks until the disk is full, and returns their tokens.
func (s *scene) fill(store *Store) map[lock.Name]lock.Token {
	s.Helper()
	tokens := make(map[lock.Name]lock.Token)
	for {
		name := lock.Name(fmt.Sprintf("/%d_lock", s.clock.Now().Boot))
		token, err := s.Commit(store, name, 0, s.Hold("ada"))
		if err != nil {
			if !errors.Is(err, syscall.ENOSPC) || errors.Is(err, lock.ErrUncertain) || strings.Contains(err.Error(), "/real") {
				s.Fatalf("on a full disk: %v", err)
			}
			s.HeldBy(store, name, "")
			return tokens
		}
		tokens[name] = token
	}
}

// All locks that could be taken can be given back on a full disk, and a killed server does not bring them back.
func TestOnAFullDiskLocksAreRefusedAndReleasesRecorded(t *testing.T) {
	for _, room := range []int64{6000, 10_000, 50_000} {
		s, store, f := faultyScene(t)
		f.room = room
		tokens := s.fill(store)
		if len(tokens) < 2 {
			t.Fatalf("only %d locks fit into %d bytes", len(tokens), room)
		}
		for name, token := range tokens {
			s.Release(store, name, token)
			if len(tokens)%2 == 0 {
				s.fill(store) // the room that releases give back is room for other locks, and no more
			}
		}
		f.room = 0
		held := len(s.Records(store))
		s.crash(store)
		store = s.mustOpen()
		if got := len(s.Records(store)); got != held {
			t.Errorf("%d locks after the crash, want %d", got, held)
		}
		for name := range tokens {
			if !slices.Contains(s.causes(name), "release") {
				t.Errorf("the release of %s is not in the history", name)
			}
		}
		if failed(store) {
			t.Error("the process would end")
		}
	}
}

// A start on a full disk is better than none: what was acknowledged stands.
func TestAStartWithoutRoomForReleases(t *testing.T) {
	s, store, f := faultyScene(t)
	s.crash(store)
	f.room = 1
	store = s.mustOpen()
	s.HeldBy(store, "/old_lock", "ada")
	if _, err := s.Commit(store, "/a_lock", 0, s.Hold("ada")); !errors.Is(err, syscall.ENOSPC) || failed(store) {
		t.Errorf("got %v", err)
	}
	f.room = 0
	s.Acquire(store, "/a_lock", "ada")
}

// On a file system without a promise for room, such as Btrfs, a release may fail. It says so, and the lock stands.
func TestAReleaseThatCannotBeRecordedIsRefused(t *testing.T) {
	s, store, f := faultyScene(t)
	token := s.Acquire(store, "/a_lock", "ada")
	f.write = func([]byte) error { return syscall.EDQUOT }
	_, err := s.Commit(store, "/a_lock", token)
	if !errors.Is(err, lock.ErrUnrecorded) || !errors.Is(err, syscall.EDQUOT) || failed(store) {
		t.Errorf("got %v", err)
	}
	s.HeldBy(store, "/a_lock", "ada")
	f.write = nil
	s.Release(store, "/a_lock", token)
	s.crash(store)
	s.HeldBy(s.mustOpen(), "/a_lock", "")
}

// What is in the file after a write that failed is known only if the disk was full and the file could be cut back.
func TestAWriteThatLeavesItUnknownWhatIsInTheFileEndsTheProcess(t *testing.T) {
	for _, c := range []struct {
		name            string
		write, truncate error
	}{
		{"an input/output error", syscall.EIO, nil},
		{"a file system that has become read-only", syscall.EROFS, nil},
		{"a full disk, and the piece of a line cannot be removed", syscall.ENOSPC, syscall.EIO},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, store, f := faultyScene(t)
			f.write, f.truncate = func([]byte) error { return c.write }, c.truncate
			if _, err := s.Commit(store, "/a_lock", 0, s.Hold("ada")); !errors.Is(err, lock.ErrUncertain) || !errors.Is(err, ErrFailed) {
				t.Errorf("got %v", err)
			}
			f.write, f.truncate = nil, nil
			if _, err := s.Commit(store, "/b_lock", 0, s.Hold("ada")); !errors.Is(err, ErrFailed) || errors.Is(err, lock.ErrUncertain) {
				t.Errorf("after it: %v", err)
			}
			if !failed(store) {
				t.Error("the process does not end")
			}
			s.crash(store)
			s.wrap = nil
			s.HeldBy(s.mustOpen(), "/old_lock", "ada")
		})
	}
}

func TestAFailedSyncIsNeverBelievedAgain(t *testing.T) {
	s, store, f := faultyScene(t)
	released := s.Acquire(store, "/b_lock", "ada")
	f.sync = func() error { return syscall.EIO }
	_, err := s.Commit(store, "/a_lock", 0, s.Hold("ada"))
	if !errors.Is(err, lock.ErrUncertain) || strings.Contains(err.Error(), "/real") {
		t.Errorf("got %v", err)
	}
	s.HeldBy(store, "/a_lock", "ada") // nobody else gets it
	f.sync = nil
	for range 2 {
		if _, err := s.Commit(store, "/c_lock", 0, s.Hold("ada")); !errors.Is(err, ErrFailed) || errors.Is(err, lock.ErrUncertain) {
			t.Errorf("after it: %v", err)
		}
		if _, err := s.Commit(store, "/b_lock", released); !errors.Is(err, ErrFailed) {
			t.Errorf("after it: %v", err)
		}
	}
	s.HeldBy(store, "/c_lock", "")
	if !failed(store) {
		t.Error("the process does not end")
	}
	if err := store.Close(); !errors.Is(err, ErrFailed) {
		t.Errorf("Close: %v", err)
	}
	s.wrap = nil
	s.HeldBy(s.mustOpen(), "/b_lock", "ada")
}

// A start on a disk that refuses to sync says so, and the next one on a healthy disk has everything.
func TestAStartWhoseSyncFailsIsNone(t *testing.T) {
	s, store, f := faultyScene(t)
	s.crash(store)
	for n := 1; n <= 2; n++ {
		syncs := 0
		f.sync = func() error {
			if syncs++; syncs >= n {
				return syscall.EIO
			}
			return nil
		}
		if _, err := s.open(); !errors.Is(err, ErrFailed) {
			t.Errorf("sync %d: %v", n, err)
		}
	}
	f.sync = nil
	s.HeldBy(s.mustOpen(), "/old_lock", "ada")
}

// together has many acquire at once while the first sync is held up until all of them are written.
func (s *scene) together(store *Store, f *faults, others int32, syncErr error) []error {
	var syncs, written atomic.Int32
	started, waiting := make(chan struct{}), make(chan struct{})
	f.sync = func() error {
		switch syncs.Add(1) {
		case 1:
			close(started)
			<-waiting
			return syncErr
		case 4: // one may begin while the last lines are being written
			s.Error("more than 3 syncs")
		}
		return nil // after the first, also if what it lost is lost
	}
	f.write = func(b []byte) error {
		if strings.HasPrefix(string(b), `{"event":"acquire"`) && written.Add(1) == others+1 {
			close(waiting)
		}
		return nil
	}
	var running sync.WaitGroup
	errs := make([]error, others+1)
	acquire := func(i int32) {
		_, errs[i] = s.Commit(store, lock.Name(fmt.Sprintf("/%d_lock", i)), 0, s.Hold("ada"))
	}
	running.Go(func() { acquire(0) })
	<-started
	for i := range others {
		running.Go(func() { acquire(i + 1) })
	}
	running.Wait()
	f.sync, f.write = nil, nil
	return errs
}

func TestManyGrantsShareOneSync(t *testing.T) {
	s, store, f := faultyScene(t)
	if err := errors.Join(s.together(store, f, 20, nil)...); err != nil {
		t.Error(err)
	}
}

// Nobody who waits for a sync may take its failure for a success.
func TestAFailedSyncFailsAllThatWaitForIt(t *testing.T) {
	s, store, f := faultyScene(t)
	for _, err := range s.together(store, f, 10, syscall.EIO) {
		if !errors.Is(err, lock.ErrUncertain) {
			t.Errorf("got %v", err)
		}
	}
}

func TestOnlyADurableGrantIsSynced(t *testing.T) {
	for _, durable := range []bool{false, true} {
		s, f := newScene(t), new(faults)
		s.wrap = func(real journalFile) journalFile { return faulty{real, f} }
		s.options = func(o *Options) { o.Durable = durable }
		store := s.mustOpen()
		var order []string
		f.write = func(b []byte) error {
			if b[0] != 0 {
				order = append(order, strings.Split(string(b), `"`)[3])
			}
			return nil
		}
		f.sync = func() error { order = append(order, "sync"); return nil }
		s.Release(store, "/a_lock", s.Acquire(store, "/a_lock", "ada"))
		f.sync, f.write = nil, nil
		want := "acquire release"
		if durable {
			want = "acquire sync release"
		}
		if got := strings.Join(order, " "); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// A probe that looks whether the journal can be synced must not find a file that a rotation has closed, and take that for a
// disk that has failed.
func TestReadyBesideARotation(t *testing.T) {
	s, store, _ := faultyScene(t)
	before, err := store.readyLog()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.rotate(store); err != nil {
		t.Fatal(err)
	}
	if err := before.sync(before.end.Load() + 1); err != nil || failed(store) {
		t.Errorf("got %v", err)
	}
	if err := store.Ready(); err != nil {
		t.Error(err)
	}
}

func TestReadySaysThatTheDiskIsFullOrHasFailed(t *testing.T) {
	_, store, f := faultyScene(t)
	store.log.size, store.log.ahead = store.log.end.Load()+store.log.keep, 0 // nothing is left of the room that was made
	f.room = store.log.size
	if err := store.Ready(); err != syscall.ENOSPC || failed(store) {
		t.Errorf("a full disk: %v", err)
	}
	f.room = 0
	if err := store.Ready(); err != nil {
		t.Error(err)
	}
	f.sync = func() error { return syscall.EIO }
	if err := store.Ready(); !errors.Is(err, syscall.EIO) || !failed(store) {
		t.Errorf("a disk that fails: %v", err)
	}
}

// What is synced to a file that has no name any more is lost, and who removed it may have started another server.
func TestAJournalThatIsGoneEndsTheProcess(t *testing.T) {
	for name, away := range map[string]func(s *scene) error{
		"removed":  func(s *scene) error { return os.RemoveAll(s.state) },
		"replaced": func(s *scene) error { return os.WriteFile(s.state+".new", nil, 0o600) },
	} {
		for when, notices := range map[string]func(s *scene, store *Store) error{
			"grant": func(s *scene, store *Store) error {
				_, err := s.Commit(store, "/a_lock", 0, s.Hold("ada"))
				return err
			},
			"sweep": func(s *scene, store *Store) error { return store.Sweep(t.Context()) },
			"ready": func(s *scene, store *Store) error { return store.Ready() },
		} {
			s, store, _ := faultyScene(t)
			err := away(s)
			if name == "replaced" && err == nil {
				err = os.Rename(s.state+".new", stateDir(s.state).journal())
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := notices(s, store); !errors.Is(err, ErrFailed) || !errors.Is(err, ErrGone) || !failed(store) {
				t.Errorf("%s: %s: %v", name, when, err)
			}
		}
	}
}

// Whoever asks whether a lock can be granted may still sync the file that a rotation has replaced.
func TestARotationDuringASyncEndsNothing(t *testing.T) {
	s, store, f := faultyScene(t)
	syncing, replaced := make(chan struct{}), make(chan struct{})
	var begun atomic.Bool
	f.sync = func() error {
		if begun.CompareAndSwap(false, true) {
			close(syncing)
			<-replaced
		}
		return nil
	}
	asked, rotated := make(chan error), make(chan error)
	go func() { asked <- store.Ready() }()
	<-syncing
	before, err := os.Stat(stateDir(s.state).journal())
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		store.mu.Lock()
		defer store.mu.Unlock()
		rotated <- store.rotateLocked()
	}()
	for there := before; os.SameFile(before, there); time.Sleep(time.Millisecond) {
		if there, err = os.Stat(stateDir(s.state).journal()); err != nil {
			t.Fatal(err)
		}
	}
	close(replaced)
	if err := <-asked; err != nil {
		t.Errorf("it says that no lock can be granted: %v", err)
	}
	if err := <-rotated; err != nil || failed(store) {
		t.Errorf("rotation: %v", err)
	}
}
