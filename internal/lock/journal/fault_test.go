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
	first, adopt, restore := s.granted("/a_lock", 1), s.granted("/a_lock", 2), s.granted("/a_lock", 1)
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

func TestAFailedWriteEndsTheProcess(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EIO, syscall.EROFS} {
		s := newScene(t)
		l := s.mustOpen()
		s.acquire(l, "/old_lock")
		r := s.grant(l, "/a_lock")
		s.faults.set(func(f *faults) { f.onWrite = func([]byte, int64) error { return errno } })
		if err := l.Wait(t.Context(), l.Append([]lock.Record{r}), true); !errors.Is(err, lock.ErrUncertain) || !errors.Is(err, ErrFailed) || strings.Contains(err.Error(), "/real") {
			t.Errorf("%v: %v", errno, err)
		}
		s.faults.set(func(f *faults) { f.onWrite = nil })
		if !failed(l) {
			t.Error("the process does not end")
		}
		s.crash(l)
		if l = s.mustOpen(); s.held(l) != "/old_lock" {
			t.Errorf("held %s", s.held(l))
		}
	}
}

func TestNoSyncSucceedsAfterAFailedOne(t *testing.T) {
	s := newScene(t)
	l := s.mustOpen()
	h := s.acquire(l, "/b_lock")
	r := s.grant(l, "/a_lock")
	s.faults.set(func(f *faults) { f.onSync = func() error { return syscall.EIO } })
	end := l.Append([]lock.Record{r})
	for range 2 {
		if err := l.Wait(t.Context(), end, true); !errors.Is(err, lock.ErrUncertain) || !errors.Is(err, ErrFailed) {
			t.Errorf("got %v", err)
		}
		s.faults.set(func(f *faults) { f.onSync = nil })
	}
	if err := l.Wait(t.Context(), l.Append([]lock.Record{s.ended(h)}), false); !errors.Is(err, ErrFailed) || !failed(l) {
		t.Errorf("after it: %v", err)
	}
	if err := l.Ready(); !errors.Is(err, ErrFailed) {
		t.Errorf("Ready: %v", err)
	}
	if err := l.Close(); !errors.Is(err, ErrFailed) {
		t.Errorf("Close: %v", err)
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

// together has many acquire while the first sync is held up until all of them wait, and returns their errors and the number of syncs.
func (s *scene) together(l *Log, others int, failed error) ([]error, int) {
	var syncs atomic.Int32
	started, release := make(chan struct{}), make(chan struct{})
	records := make([]lock.Record, others+1)
	for i := range records {
		records[i] = s.granted("/a_lock", lock.Token(i+1))
	}
	s.faults.set(func(f *faults) {
		f.onSync = func() error {
			if syncs.Add(1) == 1 {
				close(started)
				<-release
			}
			return failed // also of the log's own sync, which may come first
		}
	})
	errs := make([]error, others+1)
	var all sync.WaitGroup
	all.Go(func() { errs[0] = l.Wait(context.Background(), l.Append(records[:1]), true) })
	<-started
	var appended sync.WaitGroup
	for i := range others {
		appended.Add(1)
		all.Go(func() {
			end := l.Append(records[i+1 : i+2])
			appended.Done()
			errs[i+1] = l.Wait(context.Background(), end, true)
		})
	}
	appended.Wait()
	close(release)
	all.Wait()
	s.faults.set(func(f *faults) { f.onSync = nil })
	return errs, int(syncs.Load())
}

// settled returns when the log has nothing to do in the background.
func (s *scene) settled(l *Log) {
	s.Helper()
	if err := l.keep(false); err != nil {
		s.Fatal(err)
	}
}

func TestManyGrantsShareOneSync(t *testing.T) {
	s := newScene(t)
	l := s.mustOpen()
	s.settled(l)
	errs, syncs := s.together(l, 20, nil)
	// The first, the shared one, and one for callers that come during it. Meanwhile the log may fill the next segment, which it also syncs.
	if err := errors.Join(errs...); err != nil || syncs > 5 {
		t.Errorf("%d syncs, %v", syncs, err)
	}
}

func TestAFailedSyncFailsAllThatWaitForIt(t *testing.T) {
	s := newScene(t)
	l := s.mustOpen()
	s.settled(l)
	errs, _ := s.together(l, 10, syscall.EIO)
	for _, err := range errs {
		if !errors.Is(err, lock.ErrUncertain) {
			t.Errorf("got %v", err)
		}
	}
}

// While a sync hangs, callers that want no sync go on.
func TestASyncThatHangs(t *testing.T) {
	s := newScene(t)
	l := s.mustOpen()
	s.settled(l)
	release, started := make(chan struct{}), make(chan struct{})
	var once sync.Once
	s.faults.set(func(f *faults) {
		f.onSync = func() error { once.Do(func() { close(started) }); <-release; return nil }
	})
	h := s.granted("/a_lock", 1)
	end := l.Append([]lock.Record{h})
	first := make(chan error)
	go func() { first <- l.Wait(context.Background(), end, true) }()
	<-started
	s.release(l, h.Hold)
	close(release)
	if err := <-first; err != nil {
		t.Error(err)
	}
}

func TestOnlyADurableGrantIsSynced(t *testing.T) {
	for _, durable := range []bool{false, true} {
		s := newScene(t)
		s.options = func(o *Options) { o.Durable = durable }
		l := s.mustOpen()
		s.settled(l)
		var mu sync.Mutex
		var order []string
		add := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, what)
		}
		s.faults.set(func(f *faults) {
			f.onWrite = func(b []byte, _ int64) error {
				for text := range strings.Lines(string(b)) {
					if kind, _, _ := strings.Cut(text, " "); b[0] != 0 && kind != syncedLine {
						add(kind)
					}
				}
				return nil
			}
			f.onSync = func() error { add("sync"); return nil }
		})
		want := "grant end"
		if durable {
			want = "grant sync end"
		}
		got := ""
		for range 10 { // the upkeep may sync the next segment in between
			mu.Lock()
			order = nil
			mu.Unlock()
			s.release(l, s.acquire(l, "/a_lock"))
			mu.Lock()
			got = strings.Join(order, " ")
			mu.Unlock()
			if got == want {
				break
			}
		}
		s.faults.set(func(f *faults) { f.onWrite, f.onSync = nil, nil })
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// What is synced to a file without a name is lost, and another server may use the state directory.
func TestAJournalThatIsGoneEndsTheProcess(t *testing.T) {
	for name, away := range map[string]func(s *scene) error{
		// Removal of the files one by one would meet the next segment, which the log makes at the same time.
		"removed": func(s *scene) error { return os.Rename(s.state, s.state+".gone") },
		"replaced": func(s *scene) error {
			return errors.Join(os.WriteFile(s.state+".new", nil, 0o600), os.Rename(s.state+".new", stateDir(s.state).segment(1)))
		},
	} {
		s := newScene(t)
		l := s.mustOpen()
		if err := away(s); err != nil {
			t.Fatal(err)
		}
		if err := l.Run(t.Context()); !errors.Is(err, ErrFailed) || !errors.Is(err, ErrGone) {
			t.Errorf("%s: %v", name, err)
		}
		if err := l.Wait(t.Context(), l.Append([]lock.Record{s.granted("/a_lock", l.last+1)}), true); !errors.Is(err, ErrGone) {
			t.Errorf("%s: a grant: %v", name, err)
		}
	}
}

// Syncs of the zeros ahead and of new segments are beside those of records: none may be taken for the other.
func TestReadyDuringRotations(t *testing.T) {
	s := newScene(t)
	l := s.mustOpen()
	var all sync.WaitGroup
	all.Go(func() {
		for range 20 {
			if err := l.turn(); err != nil {
				t.Error(err)
			}
		}
	})
	for range 50 {
		if err := l.Ready(); err != nil {
			t.Error(err)
		}
	}
	all.Wait()
	if failed(l) {
		t.Error("the process would end")
	}
}

// No caller waits for the sync of a release. The log syncs it within two seconds, and then syncs nothing more.
func TestAReleaseIsSyncedInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		l := s.mustOpen()
		h := s.acquire(l, "/a_lock")
		s.release(l, h)
		end := l.writtenTo.Load()
		if l.syncedTo.Load() >= end {
			t.Fatal("the release waited for a sync")
		}
		time.Sleep(2*syncEvery + keepEvery)
		synctest.Wait()
		if l.syncedTo.Load() < end {
			t.Error("the release is not synced")
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
