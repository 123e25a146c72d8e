package journal

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// faulty is a journalFile that fails when it is told to.
type faulty struct {
	journalFile
	write    func(b []byte) (n int, err error) // n bytes are written before the error
	truncate error
	sync     func() error
}

func (f *faulty) WriteAt(b []byte, offset int64) (int, error) {
	if f.write != nil {
		if n, err := f.write(b); err != nil {
			n, _ = f.journalFile.WriteAt(b[:n], offset)
			return n, &os.PathError{Op: "write", Path: "/real/path", Err: err}
		}
	}
	return f.journalFile.WriteAt(b, offset)
}

func (f *faulty) Truncate(size int64) error {
	if f.truncate != nil {
		return f.truncate
	}
	return f.journalFile.Truncate(size)
}

func (f *faulty) Sync() error {
	if f.sync != nil {
		if err := f.sync(); err != nil {
			return &os.PathError{Op: "fdatasync", Path: "/real/path", Err: err}
		}
	}
	return f.journalFile.Sync()
}

// faultyScene opens a store whose journal can be made to fail.
func faultyScene(t *testing.T) (*scene, *Store, *faulty) {
	s, f := newScene(t), &faulty{}
	s.wrap = func(real journalFile) journalFile {
		f.journalFile = real
		return f
	}
	store := s.mustOpen()
	s.acquire(store, "/old_lock", "ada")
	return s, store, f
}

// full is a disk on which n more bytes have room.
func full(n int) func([]byte) (int, error) {
	return func(b []byte) (int, error) { return min(n, len(b)), syscall.ENOSPC }
}

func TestOnAFullDiskNoLockIsGrantedAndNothingChanges(t *testing.T) {
	s, store, f := faultyScene(t)
	for _, room := range []int{0, 1, 100} {
		f.write = full(room)
		before := s.journal()
		_, err := s.commit(store, "/a_lock", 0, s.hold("ada"))
		if !errors.Is(err, syscall.ENOSPC) || errors.Is(err, lock.ErrUncertain) || strings.Contains(err.Error(), "/real") {
			t.Errorf("got %v", err)
		}
		s.heldBy(store, "/a_lock", "")
		s.hasDirectory("/a_lock", false)
		if s.journal() != before {
			t.Errorf("a piece of a line was left behind")
		}
	}
	f.write = nil
	s.acquire(store, "/a_lock", "ada")
	s.crash(store)
	s.heldBy(s.mustOpen(), "/a_lock", "ada")
}

func TestAPieceOfALineThatCannotBeRemovedIsRemovedLater(t *testing.T) {
	s, store, f := faultyScene(t)
	f.write, f.truncate = full(100), syscall.EIO
	if _, err := s.commit(store, "/a_lock", 0, s.hold("ada")); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v", err)
	}
	f.write = nil
	if _, err := s.commit(store, "/a_lock", 0, s.hold("ada")); !errors.Is(err, syscall.EIO) {
		t.Errorf("something was written behind it: %v", err)
	}
	f.truncate = nil
	s.acquire(store, "/a_lock", "ada")
	s.crash(store)
	s.heldBy(s.mustOpen(), "/a_lock", "ada")
}

func TestOnAFullDiskALockCanBeReleased(t *testing.T) {
	s, store, f := faultyScene(t)
	token := s.acquire(store, "/a_lock", "ada")
	f.write = full(50)
	s.release(store, "/a_lock", token)
	s.heldBy(store, "/a_lock", "")
	s.hasDirectory("/a_lock", false)

	t.Run("a crash brings it back", func(t *testing.T) {
		copied := newScene(t)
		if err := os.CopyFS(copied.state, os.DirFS(s.state)); err != nil {
			t.Fatal(err)
		}
		copied.heldBy(copied.mustOpen(), "/a_lock", "ada")
	})

	f.write = nil
	next := s.acquire(store, "/b_lock", "ada") // writes what was owed, too
	if next <= token+1 {
		t.Errorf("token %d after the release with %d", next, token+1)
	}
	s.acquire(store, "/a_lock", "eve")
	s.acquire(store, "/c_lock", "ada")
	s.crash(store)
	store = s.mustOpen()
	s.heldBy(store, "/a_lock", "eve")
	var causes []lock.Cause
	for entry, err := range History(s.state, "/a_lock") {
		if err != nil {
			t.Fatal(err)
		}
		causes = append(causes, entry.Cause)
	}
	if got, want := fmt.Sprint(causes), "[acquire release acquire]"; got != want {
		t.Errorf("history %v, want %v", got, want)
	}
}

func TestAFailedSyncIsNeverBelievedAgain(t *testing.T) {
	s, store, f := faultyScene(t)
	released := s.acquire(store, "/b_lock", "ada")
	f.sync = func() error { return syscall.EIO }
	_, err := s.commit(store, "/a_lock", 0, s.hold("ada"))
	if !errors.Is(err, lock.ErrUncertain) || strings.Contains(err.Error(), "/real") {
		t.Errorf("got %v", err)
	}
	s.heldBy(store, "/a_lock", "ada") // nobody else gets it
	s.hasDirectory("/a_lock", false)
	f.sync = nil
	for range 2 {
		if _, err := s.commit(store, "/c_lock", 0, s.hold("ada")); !errors.Is(err, ErrFailed) || errors.Is(err, lock.ErrUncertain) {
			t.Errorf("after it: %v", err)
		}
		if _, err := s.commit(store, "/b_lock", released); !errors.Is(err, ErrFailed) {
			t.Errorf("after it: %v", err)
		}
	}
	s.heldBy(store, "/c_lock", "")
	s.hasDirectory("/c_lock", false)
	s.hasDirectory("/b_lock", true)
	if err := store.Close(); !errors.Is(err, ErrFailed) {
		t.Errorf("Close: %v", err)
	}
	s.wrap = nil
	s.heldBy(s.mustOpen(), "/b_lock", "ada")
}

// TestManyGrantsShareOneSync holds a sync up until all other grants are written: one more sync must do for them.
func TestManyGrantsShareOneSync(t *testing.T) {
	s, store, f := faultyScene(t)
	const others = 20
	var syncs, written atomic.Int32
	started, waiting := make(chan struct{}), make(chan struct{})
	f.sync = func() error {
		if syncs.Add(1) == 1 {
			close(started)
			<-waiting
		}
		return nil
	}
	f.write = func(b []byte) (int, error) {
		if strings.HasPrefix(string(b), `{"event":"acquire"`) && written.Add(1) == others+1 {
			close(waiting)
		}
		return 0, nil
	}
	var running sync.WaitGroup
	errs := make(chan error, others+1)
	acquire := func(i int) {
		_, err := s.commit(store, lock.Name(fmt.Sprintf("/%d_lock", i)), 0, s.hold("ada"))
		errs <- err
	}
	running.Go(func() { acquire(0) })
	<-started
	for i := range others {
		running.Go(func() { acquire(i + 1) })
	}
	running.Wait()
	for range others + 1 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if got := syncs.Load(); got > 3 { // one may begin while the last lines are being written
		t.Errorf("%d syncs for %d grants", got, others+1)
	}
}

// TestAFailedSyncFailsAllThatWaitForIt: no follower may take its leader's failure for a success.
func TestAFailedSyncFailsAllThatWaitForIt(t *testing.T) {
	s, store, f := faultyScene(t)
	const others = 10
	var written atomic.Int32
	started, waiting := make(chan struct{}), make(chan struct{})
	var once sync.Once
	f.sync = func() (err error) {
		once.Do(func() {
			close(started)
			<-waiting
			err = syscall.EIO
		})
		return err // a second sync would report success for what is lost
	}
	f.write = func(b []byte) (int, error) {
		if strings.HasPrefix(string(b), `{"event":"acquire"`) && written.Add(1) == others+1 {
			close(waiting)
		}
		return 0, nil
	}
	errs := make(chan error, others+1)
	acquire := func(i int) {
		_, err := s.commit(store, lock.Name(fmt.Sprintf("/%d_lock", i)), 0, s.hold("ada"))
		errs <- err
	}
	var running sync.WaitGroup
	running.Go(func() { acquire(0) })
	<-started
	for i := range others {
		running.Go(func() { acquire(i + 1) })
	}
	running.Wait()
	for range others + 1 {
		if err := <-errs; !errors.Is(err, lock.ErrUncertain) {
			t.Errorf("got %v", err)
		}
	}
}

func TestWithoutDurableNothingIsSynced(t *testing.T) {
	s, f := newScene(t), &faulty{}
	s.wrap = func(real journalFile) journalFile { f.journalFile = real; return f }
	s.options = func(o *Options) { o.Durable = false }
	store := s.mustOpen()
	f.sync = func() error { t.Error("synced"); return nil }
	s.release(store, "/a_lock", s.acquire(store, "/a_lock", "ada"))
	f.sync = nil
}

func TestADurableGrantIsSyncedBeforeItsDirectoryIsMade(t *testing.T) {
	s, f := newScene(t), &faulty{}
	s.wrap = func(real journalFile) journalFile { f.journalFile = real; return f }
	store := s.mustOpen()
	var order []string
	f.write = func(b []byte) (int, error) {
		order = append(order, strings.Split(string(b), `"`)[3])
		return 0, nil
	}
	f.sync = func() error { order = append(order, "sync"); return nil }
	s.tree.before = func(op, _ string) error {
		if op != "lstat" {
			order = append(order, op)
		}
		return nil
	}
	token := s.acquire(store, "/a_lock", "ada")
	token, err := s.commit(store, "/a_lock", token, s.hold("ben"))
	if err != nil {
		t.Fatal(err)
	}
	s.release(store, "/a_lock", token)
	f.sync, f.write, s.tree.before = nil, nil, nil
	if got, want := strings.Join(order, " "), "acquire sync mkdir directory acquire sync chtimes rmdir release"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestRotationSyncsWhatGoesIntoHistory(t *testing.T) {
	s, f := newScene(t), &faulty{}
	s.wrap = func(real journalFile) journalFile { f.journalFile = real; return f }
	s.options = func(o *Options) { o.Durable, o.MaxSize = false, 1000 }
	store := s.mustOpen()
	syncs := 0
	f.sync = func() error { syncs++; return nil }
	for old := []string{}; len(old) == 0; old, _ = stateDir(s.state).rotated() {
		s.release(store, "/a_lock", s.acquire(store, "/a_lock", "ada"))
	}
	f.sync = nil
	if syncs != 1 {
		t.Errorf("%d syncs of the old journal, want 1", syncs)
	}
}
