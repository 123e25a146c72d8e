package journal

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// failed reports whether the process must end.
func failed(l *Log) bool {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return l.failure.get() != nil && errors.Is(l.Run(context.Background()), ErrFailed) || l.Run(ctx) != nil
}

func (s *scene) fullAt(size int64) { s.faults.set(func(f *faults) { f.limit = size }) }

// All locks that could be acquired can be released on a full disk, and a killed server does not bring them back.
func TestOnAFullDiskLocksAreRefusedAndReleasesRecorded(t *testing.T) {
	for _, size := range []int64{36_000, 50_000, 200_000} {
		s := newScene(t)
		s.fullAt(size)
		l := s.mustOpen()
		var tokens []lock.Hold
		for round := range 3 {
			tokens = append(tokens, s.fill(l)...)
			if round == 0 && len(tokens) < 1 {
				t.Fatalf("no lock fits into %d bytes", size)
			}
			for _, h := range tokens[:len(tokens)/2] {
				s.release(l, h)
			}
			tokens = tokens[len(tokens)/2:]
		}
		tokens = append(tokens, s.fill(l)...)
		for _, h := range tokens {
			s.release(l, h)
		}
		if l.stuck.Load() || failed(l) {
			t.Error("a release did not find space")
		}
		s.crash(l)
		for _, h := range tokens {
			if all := s.causes(h.Name); all[len(all)-1] != "release" {
				t.Errorf("the release of %s is not in the history", h.Name)
			}
		}
	}
}

// A start on a full disk is better than none: what was acknowledged stands.
func TestAStartOnAFullDisk(t *testing.T) {
	s := newScene(t)
	l := s.mustOpen()
	h := s.acquire(l, "/a_lock")
	s.crash(l)
	s.crash(s.mustOpen())
	s.fullAt(3 << 10)
	l = s.mustOpen()
	if s.held(l) != "/a_lock" || l.Room(l.last+1) {
		t.Errorf("held %s", s.held(l))
	}
	if err := l.MakeRoom(t.Context(), l.last+1); !errors.Is(err, lock.ErrFull) || strings.Contains(err.Error(), "/real") {
		t.Errorf("got %v", err)
	}
	if err := l.Ready(); !errors.Is(err, lock.ErrFull) || failed(l) {
		t.Errorf("Ready: %v", err)
	}
	s.release(l, h)
	s.fullAt(0)
	if err := l.Ready(); err != nil {
		t.Error(err)
	}
	s.acquire(l, "/b_lock")
}

// A file system that writes to a new place may refuse a write over zeros. The record waits, its caller at most ten seconds, and nothing is
// lost.
func TestAReleaseThatFindsNoSpaceWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		l := s.mustOpen()
		h := s.acquire(l, "/a_lock")
		s.faults.set(func(f *faults) { f.onWrite = func([]byte, int64) error { return syscall.EDQUOT } })
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		end := l.Append([]lock.Record{s.ended(h)})
		if err := l.Wait(ctx, end, false); !errors.Is(err, lock.ErrUncertain) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := l.Wait(ctx, end, false); !errors.Is(err, lock.ErrUncertain) || !errors.Is(err, lock.ErrFull) {
			t.Errorf("without a limit: %v", err)
		}
		if l.Room(l.last + 1) {
			t.Error("there is room")
		}
		if err := l.MakeRoom(t.Context(), l.last+1); !errors.Is(err, lock.ErrFull) || failed(l) {
			t.Errorf("MakeRoom: %v", err)
		}
		s.faults.set(func(f *faults) { f.onWrite = nil })
		if err := l.Wait(t.Context(), end, false); err != nil {
			t.Error(err)
		}
		s.crash(l)
		if l = s.mustOpen(); s.held(l) != "" {
			t.Errorf("held %s", s.held(l))
		}
		s.crash(l)
	})
}

// An adoption leaves space for its undoing, a grant of the earlier session, and for the end of that.
func TestAnAdoptionLeavesSpaceForItsUndoing(t *testing.T) {
	s := newScene(t)
	l := s.mustOpen()
	name := lock.Name("/" + strings.Repeat("a", 200) + "_lock")
	first, adopt, restore := s.granted(name, 1), s.granted(name, 2), s.granted(name, 1)
	adopt.Cause, adopt.Replaces = lock.CauseAdopt, 1
	restore.Cause, restore.Replaces = lock.CauseRestore, 2
	adopted := l.Append([]lock.Record{first, adopt})
	l.mu.Lock()
	left := l.holdSpace
	l.mu.Unlock()
	if used := int64(l.Append([]lock.Record{restore, s.ended(restore.Hold)}) - adopted); used > left {
		t.Errorf("%d bytes are left for the end, which needs %d", left, used)
	}
}

// After a failed write or sync the content of the disk is unknown, and a later sync that succeeds proves nothing. The next start does not read a journal
// that is gone, and another server may use the state directory.
func TestAFailureEndsTheProcess(t *testing.T) {
	fails := func(errno syscall.Errno) func([]byte, int64) error {
		return func([]byte, int64) error { return errno }
	}
	for name, c := range map[string]struct {
		fail  func(s *scene, f *faults) error
		want  error
		after string // what the next start finds
	}{
		"a write fails":        {func(_ *scene, f *faults) error { f.onWrite = fails(syscall.EIO); return nil }, syscall.EIO, "/old_lock"},
		"the disk is readonly": {func(_ *scene, f *faults) error { f.onWrite = fails(syscall.EROFS); return nil }, syscall.EROFS, "/old_lock"},
		"a sync fails":         {func(_ *scene, f *faults) error { f.onSync = func() error { return syscall.EIO }; return nil }, syscall.EIO, "/old_lock"},
		// Removal of the files one by one would meet the next segment, which the log makes at the same time.
		"the journal is moved": {func(s *scene, _ *faults) error { return os.Rename(s.state, s.state+".gone") }, ErrGone, ""},
		"a segment is replaced": {func(s *scene, _ *faults) error {
			return errors.Join(os.WriteFile(s.state+".new", nil, 0o600), os.Rename(s.state+".new", stateDir(s.state).segment(1)))
		}, ErrGone, "no start"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			l := s.mustOpen()
			old := s.acquire(l, "/old_lock")
			s.settled(l)
			s.faults.set(func(f *faults) {
				if err := c.fail(s, f); err != nil {
					t.Fatal(err)
				}
			})
			if c.want == ErrGone {
				<-l.failure.failed
			}
			end := l.Append([]lock.Record{s.granted("/a_lock", old.Token+1)})
			for _, call := range []func() error{
				func() error { return l.Wait(t.Context(), end, true) },
				func() error { return l.Wait(t.Context(), end, true) },
				func() error { return l.Wait(t.Context(), l.Append([]lock.Record{s.ended(old)}), false) },
				l.Ready,
				func() error { return l.Run(t.Context()) },
				l.Close,
			} {
				err := call()
				if !errors.Is(err, ErrFailed) || !errors.Is(err, c.want) || errors.Is(err, lock.ErrFull) || strings.Contains(err.Error(), "/real") {
					t.Errorf("got %v", err)
				}
				s.faults.set(func(f *faults) { f.onWrite, f.onSync = nil, nil })
			}
			l, err := s.open()
			if c.after == "no start" {
				if err == nil {
					t.Error("the next start ignores the damage")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer s.crash(l)
			if got := strings.TrimSuffix(s.held(l), " /a_lock"); got != c.after { // a grant that was not acknowledged may be there
				t.Errorf("held %s, want %s", got, c.after)
			}
		})
	}
}

// A start on a disk that refuses to sync is an error, and the next one on a healthy disk has everything.
func TestOpenFailsIfASyncFails(t *testing.T) {
	s := newScene(t)
	l := s.mustOpen()
	s.acquire(l, "/a_lock")
	s.crash(l)
	for n := 1; n <= 3; n++ {
		var syncs atomic.Int32
		s.faults.set(func(f *faults) {
			f.onSync = func() error {
				if int(syncs.Add(1)) >= n {
					return syscall.EIO
				}
				return nil
			}
		})
		if _, err := s.open(); !errors.Is(err, ErrFailed) {
			t.Errorf("sync %d: %v", n, err)
		}
	}
	s.faults.set(func(f *faults) { f.onSync = nil })
	if l = s.mustOpen(); s.held(l) != "/a_lock" {
		t.Errorf("held %s", s.held(l))
	}
}

// settled returns when the log has nothing to do in the background.
func (s *scene) settled(l *Log) {
	s.Helper()
	if err := l.keep(false); err != nil {
		s.Fatal(err)
	}
}

// One sync serves all that come while another one is under way, and one that fails fails them all. A caller that wants no sync waits for none.
func TestManyGrantsShareOneSync(t *testing.T) {
	const others = 20
	for _, failed := range []error{nil, syscall.EIO} {
		s := newScene(t)
		l := s.mustOpen()
		old := s.acquire(l, "/old_lock")
		s.settled(l)
		var syncs atomic.Int32
		hangs, answer := make(chan struct{}), make(chan struct{})
		s.faults.set(func(f *faults) {
			f.onSync = func() error {
				if syncs.Add(1) == 1 {
					close(hangs)
					<-answer
				}
				return failed // also of the log's own sync, which may come first
			}
		})
		var all, appended sync.WaitGroup
		var mu sync.Mutex
		var errs []error
		for i := range 1 + others {
			appended.Add(1)
			all.Go(func() {
				end := l.Append([]lock.Record{s.granted("/a_lock", old.Token+lock.Token(i)+1)})
				appended.Done()
				err := l.Wait(context.Background(), end, true)
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			})
			if i == 0 {
				<-hangs
			}
		}
		appended.Wait()
		s.release(l, old)
		close(answer)
		all.Wait()
		for _, err := range errs {
			if failed == nil && err != nil || failed != nil && !errors.Is(err, lock.ErrUncertain) {
				t.Errorf("got %v", err)
			}
		}
		// The first, the shared one, and one for callers that come during it. Meanwhile the log may fill the next segment, which it also syncs.
		if n := syncs.Load(); n > 5 {
			t.Errorf("%d syncs", n)
		}
	}
}

// A grant waits for a sync if the log is durable, a release never. The log syncs the release within two seconds, and then nothing more.
func TestOnlyADurableGrantIsSynced(t *testing.T) {
	for _, durable := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t)
			s.options = func(o *Options) { o.Durable = durable }
			l := s.mustOpen()
			synced := func(what string, want bool) {
				t.Helper()
				synctest.Wait()
				if got := l.syncedTo.Load() >= l.writtenTo.Load(); got != want {
					t.Errorf("durable %v: %s is synced: %v, want %v", durable, what, got, want)
				}
			}
			h := s.acquire(l, "/a_lock")
			synced("a grant", durable)
			s.release(l, h)
			synced("a release", false)
			end := l.writtenTo.Load()
			time.Sleep(2*syncEvery + keepEvery)
			synctest.Wait()
			if got := l.syncedTo.Load() >= end; got != durable {
				t.Errorf("durable %v: two seconds later the release is synced: %v", durable, got)
			}
			time.Sleep(2 * syncEvery)
			synctest.Wait()
			quiet := l.syncedTo.Load()
			time.Sleep(10 * syncEvery)
			synctest.Wait()
			if l.syncedTo.Load() != quiet {
				t.Error("an idle log syncs")
			}
			s.crash(l)
		})
	}
}
