package reaper_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
	"github.com/ftplockd/ftplockd/reaper"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// watched counts the calls of Expire.
type watched struct {
	*lock.Table
	asked atomic.Int64
}

func (w *watched) Expire(ctx context.Context) {
	w.asked.Add(1)
	w.Table.Expire(ctx)
}

// sweeper counts its calls and fails on demand.
type sweeper struct {
	calls atomic.Int64
	fails atomic.Bool
	wait  chan struct{} // each sweep waits for it, even after the end of ctx
}

func (s *sweeper) Sweep(context.Context) error {
	s.calls.Add(1)
	if s.wait != nil {
		<-s.wait
	}
	if s.fails.Load() {
		return errors.New("disk on fire")
	}
	return nil
}

type bench struct {
	t     *testing.T
	table *watched
	disk  *locktest.Disk
	clock *locktest.FakeClock
	stop  context.CancelFunc
	done  chan error
}

// start runs a reaper in the bubble of a test; the test ends it with finish.
func start(t *testing.T, r *reaper.Reaper) *bench {
	t.Helper()
	rules, err := lock.NewRules([]lock.Rule{
		{Match: "/locks/**", MaxAge: 10 * time.Minute},
		{Match: "/ever"},
	})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, disk: new(locktest.Disk), clock: locktest.NewRunningClock(), done: make(chan error, 1)}
	table, err := lock.NewTable(t.Context(), lock.Options{Log: locktest.NewMemory(), Disk: b.disk, Clock: b.clock, Rules: rules})
	if err != nil {
		t.Fatal(err)
	}
	b.table = &watched{Table: table}
	r.Table = b.table
	ctx, stop := context.WithCancel(t.Context())
	b.stop = stop
	go func() { b.done <- r.Run(ctx) }()
	synctest.Wait()
	return b
}

func (b *bench) finish() {
	b.t.Helper()
	b.stop()
	if err := <-b.done; err != nil {
		b.t.Error(err)
	}
}

func (b *bench) acquire(s *lock.Session, n lock.Name) lock.Hold {
	b.t.Helper()
	hold, _, _, err := s.AcquireOrWait(b.t.Context(), n, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	synctest.Wait()
	return hold
}

func (b *bench) held(n lock.Name) bool {
	synctest.Wait()
	_, ok := b.table.Get(n)
	return ok
}

// endsIn checks that a lock ends after d, and not a nanosecond before.
func (b *bench) endsIn(n lock.Name, d time.Duration) {
	b.t.Helper()
	time.Sleep(d - time.Nanosecond)
	if !b.held(n) {
		b.t.Errorf("%s ended early", n)
	}
	time.Sleep(time.Nanosecond)
	if b.held(n) {
		b.t.Errorf("%s did not end when it was due", n)
	}
}

func TestLocksEndWhenTheyAreDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, &reaper.Reaper{})
		s := b.table.Open(lock.Owner{Account: "a"})
		b.acquire(s, "/locks/a")
		time.Sleep(1500 * time.Millisecond)
		b.acquire(s, "/locks/b")
		s.SetAge(300 * time.Millisecond) // ends sooner than the reaper wakes by itself
		b.acquire(s, "/locks/sooner")
		b.endsIn("/locks/sooner", 300*time.Millisecond)
		b.endsIn("/locks/a", 10*time.Minute-1800*time.Millisecond)
		b.endsIn("/locks/b", 1500*time.Millisecond)
		b.finish()
	})
}

func TestLocksEndWithinASecondAfterASuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, &reaper.Reaper{})
		b.acquire(b.table.Open(lock.Owner{Account: "a"}), "/locks/a")
		b.clock.Advance(time.Hour) // timers do not count a suspend
		time.Sleep(time.Second)
		if b.held("/locks/a") {
			t.Error("the lock did not end")
		}
		b.finish()
	})
}

func TestReaperSleepsWithoutLocksThatExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, &reaper.Reaper{})
		s := b.table.Open(lock.Owner{Account: "a"})
		b.acquire(s, "/ever")
		before := b.table.asked.Load()
		time.Sleep(24 * time.Hour)
		if n := b.table.asked.Load() - before; n != 0 {
			t.Errorf("called Expire %d times", n)
		}
		b.acquire(s, "/locks/a")
		if err := s.Release(t.Context(), "/locks/a"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if n := b.table.asked.Load() - before; n > 3 {
			t.Errorf("called Expire %d times for a released lock", n)
		}
		b.finish()
	})
}

func TestReaperRetriesALockThatCannotEndOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, &reaper.Reaper{})
		s := b.table.Open(lock.Owner{Account: "a"})
		b.acquire(s, "/locks/a")
		b.disk.OnRemove(func(lock.Hold) error { return lock.ErrNotEmpty })
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		tries := 0
		b.disk.OnRemove(func(lock.Hold) error { tries++; return lock.ErrNotEmpty })
		time.Sleep(time.Hour)
		synctest.Wait()
		if tries < 60 || tries > 70 || b.table.asked.Load() > 10*60+60*60+100 {
			t.Errorf("%d tries in an hour, %d calls of Expire", tries, b.table.asked.Load())
		}
		b.disk.OnRemove(nil)
		time.Sleep(time.Minute)
		if b.held("/locks/a") {
			t.Error("the lock did not end when it could")
		}
		b.finish()
	})
}

func TestSweepsRunAtStartAndEachMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		sweep := &sweeper{}
		b := start(t, &reaper.Reaper{Sweepers: []reaper.Sweeper{sweep}, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if sweep.calls.Load() != 1 {
			t.Errorf("%d sweeps at start", sweep.calls.Load())
		}
		sweep.fails.Store(true)
		time.Sleep(time.Minute - time.Nanosecond)
		synctest.Wait()
		if sweep.calls.Load() != 1 {
			t.Error("swept early")
		}
		time.Sleep(2*time.Minute + 1)
		synctest.Wait()
		if sweep.calls.Load() != 4 {
			t.Errorf("%d sweeps", sweep.calls.Load())
		}
		b.finish()
		if n := strings.Count(log.String(), "disk on fire"); n != 3 {
			t.Errorf("logged %d times:\n%s", n, log.String())
		}
	})
}

func TestSlowSweepDelaysNoLockAndNoOtherSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wait, other := make(chan struct{}), &sweeper{}
		b := start(t, &reaper.Reaper{Sweepers: []reaper.Sweeper{&sweeper{wait: wait}, other}})
		b.acquire(b.table.Open(lock.Owner{Account: "a"}), "/locks/a")
		time.Sleep(10 * time.Minute)
		if b.held("/locks/a") {
			t.Error("the lock did not end")
		}
		if n := other.calls.Load(); n != 11 {
			t.Errorf("the other sweeper was called %d times", n)
		}
		b.stop()
		synctest.Wait()
		if len(b.done) > 0 {
			t.Error("returned before its sweep was over")
		}
		close(wait)
		b.finish()
	})
}

// The directories of two locks are on a mount that hangs. The other locks end in time, and their waiting clients get them.
func TestHangingEndOfALockDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, &reaper.Reaper{})
		s, next := b.table.Open(lock.Owner{Account: "a"}), b.table.Open(lock.Owner{Account: "b"})
		names := []lock.Name{"/locks/hung1", "/locks/hung2", "/locks/a"}
		for _, n := range names {
			b.acquire(s, n)
		}
		time.Sleep(5 * time.Minute)
		b.acquire(s, "/locks/b")
		next.SetWait(time.Hour)
		woken := make(chan struct{}, 1)
		_, _, waiting, err := next.AcquireOrWait(t.Context(), "/locks/b", func() {
			select {
			case woken <- struct{}{}:
			default:
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		answer := make(chan struct{})
		b.disk.OnRemove(func(h lock.Hold) error {
			if strings.HasPrefix(string(h.Name), "/locks/hung") {
				<-answer
			}
			return nil
		})
		time.Sleep(5 * time.Minute)
		if b.held("/locks/a") {
			t.Error("a lock did not end beside those that hang")
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		select {
		case <-woken:
		default:
			t.Fatal("the waiting client was not woken")
		}
		if _, over, err := waiting.Poll(t.Context()); !over || err != nil {
			t.Error(over, err)
		}
		close(answer)
		for _, n := range names {
			if b.held(n) {
				t.Errorf("%s is held", n)
			}
		}
		b.finish()
	})
}
