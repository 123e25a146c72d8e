package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

// scriptedDisk is a disk whose steps a test replaces.
type scriptedDisk struct {
	*locktest.Disk
	free    func() bool
	make    func(lock.Name) error
	gone    func(lock.Hold) bool
	restore func(lock.Hold) (id lock.DirectoryID, gone bool, err error)
}

func (d *scriptedDisk) Free(lock.Name) bool { return d.free != nil && d.free() }

func (d *scriptedDisk) Make(ctx context.Context, n lock.Name) (lock.DirectoryID, error) {
	if d.make != nil {
		if err := d.make(n); err != nil {
			return lock.DirectoryID{}, err
		}
	}
	return d.Disk.Make(ctx, n)
}

func (d *scriptedDisk) Gone(_ context.Context, h lock.Hold) (bool, error) {
	return d.gone != nil && d.gone(h), nil
}

func (d *scriptedDisk) Restore(ctx context.Context, h lock.Hold) (lock.DirectoryID, bool, error) {
	if d.restore != nil {
		return d.restore(h)
	}
	return d.Disk.Restore(ctx, h)
}

// withDirectories starts a table whose locks have directories.
func withDirectories(t *testing.T, rules ...lock.Rule) *scene {
	t.Helper()
	s := newScene(t, rules...)
	s.disk = &scriptedDisk{Disk: new(locktest.Disk)}
	s.start()
	return s
}

// patientLog is a log that waits for room as the journal does while a disk is full.
type patientLog struct{ *locktest.Memory }

func (l patientLog) MakeRoom(ctx context.Context, token lock.Token) error {
	for !l.Room(token) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second / 2):
			return lock.ErrFull
		}
	}
	return nil
}

// The release of a limited lock asks the waiting sessions only until one of them takes the place.
func TestAReleaseUnderALimitServesOneSession(t *testing.T) {
	calls := 0
	table := newTable(t, lock.Options{Valid: func() error { calls++; return nil }},
		lock.Rule{Match: "/p/*", Contention: &lock.Contention{Limit: 1, Wait: time.Minute}})
	holder := table.Open(lock.Owner{Account: "a"})
	if _, err := acquire(holder, "/p/x"); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		_, _, w, err := table.Open(lock.Owner{Account: "b"}).AcquireOrWait(t.Context(), lock.Name(fmt.Sprint("/p/", i)), func() {})
		if w == nil {
			t.Fatal(err)
		}
	}
	calls = 0
	if err := holder.Release(t.Context(), "/p/x"); err != nil || !table.Held("/p/0") || calls > 10 {
		t.Errorf("%v; the first has it: %v, after %d decisions", err, table.Held("/p/0"), calls)
	}
}

// The last command of a connection that has ended was a sign of life.
func TestTheIdleTimeOfAnEndedConnectionBeginsAtItsEnd(t *testing.T) {
	b := newScene(t, lock.Rule{Match: "/x", MaxIdle: time.Minute})
	s := b.open("a")
	b.acquire(s, "/x")
	b.clock.Advance(50 * time.Second)
	s.Close(b.ctx)
	b.pass(50 * time.Second)
	if !b.table.Held("/x") {
		t.Error("it ended 50s after the last sign of life")
	}
	b.pass(11 * time.Second)
	if b.table.Held("/x") {
		t.Error("it stands 61s after the last sign of life")
	}
}

// To find the end of a group is expensive, so the end of a member makes the table look for it only a second later.
func TestEndsOfMembersDelayThoseOfTheirGroup(t *testing.T) {
	b := newScene(t, lock.Rule{Match: "/gr*", MaxIdle: time.Minute}, lock.Rule{Match: "/gr*/*"})
	b.acquire(b.open("a", "job"), "/group")
	s := b.open("a", "job")
	b.acquire(s, "/group/x", "/group/y", "/group/z")
	b.clock.Advance(2 * time.Minute)
	s.Touch()
	b.table.Expire(b.ctx)
	b.release(s, "/group/x", nil)
	b.table.Expire(b.ctx)
	if in, _ := b.table.NextExpiry(); in != time.Second {
		t.Errorf("after the end of a member the next look is due in %s", in)
	}
	b.release(s, "/group/y", nil)
	b.release(s, "/group/z", nil)
	b.table.Expire(b.ctx)
	b.held("", "/group")
}

// Expire tries seldom to end a member whose directory cannot be removed, and logs it once, also if the member ends with its group.
func TestTriesToEndAMemberBecomeRare(t *testing.T) {
	b := withDirectories(t, lock.Rule{Match: "/gr*", MaxAge: 10 * time.Minute}, lock.Rule{Match: "/gr*/*"})
	var log strings.Builder
	b.logger = slog.New(slog.NewTextHandler(&log, nil))
	b.start()
	b.acquire(b.open("a"), "/group", "/group/x")
	tries := 0
	b.disk.OnRemove(func(lock.Hold) error { tries++; return errors.New("a bad sector") })
	b.pass(20 * time.Minute)
	if logged := strings.Count(log.String(), "a bad sector"); tries < 5 || tries > 20 || logged != 1 {
		t.Errorf("%d tries in ten minutes, %d lines in the log", tries, logged)
	}
	b.disk.OnRemove(nil)
	b.pass(time.Minute)
	b.held("", "/group", "/group/x")
}

// A reload removes the rule of a name while its lock is being released, and the time of a waiting session is over.
func TestAWaitEndsThoughNoRuleMatchesAnyMore(t *testing.T) {
	b := withDirectories(t, lock.Rule{Match: "/x", Contention: &lock.Contention{Wait: 5 * time.Second}})
	holder := b.open("a")
	b.acquire(holder, "/x")
	w := b.queue(b.open("b"), "/x")
	b.disk.OnRemove(func(lock.Hold) error {
		b.table.SetRules(rulesOf(t, []lock.Rule{}...))
		b.pass(6 * time.Second)
		return nil
	})
	if err := holder.Release(b.ctx, "/x"); err != nil {
		t.Fatal(err)
	}
	if _, over, err := w.Poll(b.ctx); !over || !errors.Is(err, lock.ErrNoRule) {
		t.Error(over, err)
	}
}

// The holder keeps a lock whose rule a reload has removed.
func TestALockWithoutARuleIsHeld(t *testing.T) {
	b := withDirectories(t, lock.Rule{Match: "/x"})
	b.acquire(b.open("a"), "/x")
	b.table.SetRules(rulesOf(t, []lock.Rule{}...))
	if _, _, _, err := b.open("b").AcquireOrWait(b.ctx, "/x", nil); !errors.Is(err, lock.ErrHeld) {
		t.Error(err)
	}
}

// A session waits for a directory of a program on the host to go, and gets an error about it when its time is over.
func TestASessionWaitsForADirectoryOfTheHost(t *testing.T) {
	b := withDirectories(t, lock.Rule{Match: "/x", Contention: &lock.Contention{Wait: 5 * time.Second}})
	there := true
	b.disk.make = func(n lock.Name) error {
		if there {
			return &lock.HostError{Name: n, Since: b.clock.Now().Wall}
		}
		return nil
	}
	first := b.queue(b.open("a"), "/x")
	var over bool
	var err error
	for range 5 {
		if _, over, err = first.Poll(b.ctx); over {
			t.Fatal(err)
		}
		b.pass(time.Second)
	}
	_, over, err = first.Poll(b.ctx)
	var held *lock.HeldError
	if !over || !errors.As(err, &held) || held.Holder.Account != lock.HostAccount {
		t.Errorf("after its time: %v, %v", over, err)
	}
	second := b.queue(b.open("b"), "/x")
	there = false
	b.pass(2 * time.Second)
	if h, over, err := second.Poll(b.ctx); !over || h.Token == 0 {
		t.Errorf("when the directory has gone: %v, %v", over, err)
	}
	if _, _, _, err := b.open("c").AcquireOrWait(b.ctx, "/x", nil); !errors.Is(err, lock.ErrHeld) {
		t.Error(err)
	}
}

// While the log has no room, a session that waits keeps no other one from going on: only Run waits for room.
func TestAFullLogHoldsUpNoCloseAndNoUndo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScene(t, lock.Rule{Match: "/*", Contention: &lock.Contention{Wait: time.Hour}, OnDisconnect: lock.ReleaseOnDisconnect})
		log := patientLog{locktest.NewMemory()}
		b.log = log
		b.start()
		holder, other := b.open("a"), b.open("a")
		b.acquire(holder, "/x")
		undone := b.acquire(other, "/y")
		b.acquire(other, "/z")
		b.queue(b.open("b"), "/x")
		log.SetFull(true)
		if err := holder.Release(b.ctx, "/x"); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := other.Undo(b.ctx, "/y", undone.Token); err != nil {
			t.Fatal(err)
		}
		other.Close(b.ctx)
		if took := time.Since(began); took > 0 {
			t.Errorf("an undo and a close took %s", took)
		}
	})
}

// A session that waits gets its lock when the log has room again. The reaper is not woken for it.
func TestASessionThatWaitsGetsItsLockWhenTheLogHasRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScene(t, lock.Rule{Match: "/*", Contention: &lock.Contention{Wait: time.Hour}})
		log := patientLog{locktest.NewMemory()}
		b.log = log
		b.start()
		ctx, stop := context.WithCancel(b.ctx)
		defer stop()
		go b.table.Run(ctx)
		holder := b.open("a")
		b.acquire(holder, "/x")
		w := b.queue(b.open("b"), "/x")
		<-b.table.Changed() // since the session waits
		b.table.NextExpiry()
		log.SetFull(true)
		if err := holder.Release(b.ctx, "/x"); err != nil {
			t.Fatal(err)
		}
		for i := range 10 {
			b.open("c").Close(b.ctx)
			select {
			case <-b.table.Changed():
				t.Fatalf("change %d wakes the reaper", i)
			default:
			}
		}
		time.Sleep(3 * time.Second)
		log.SetFull(false)
		time.Sleep(3 * time.Second)
		if h, over, err := w.Poll(b.ctx); !over || err != nil || h.Token == 0 {
			t.Errorf("over %v, %v", over, err)
		}
	})
}

// While a refused MKD looks at the lock's directory, another look ends the hold.
func TestALockThatTheHostFreesDuringARefusalIsGranted(t *testing.T) {
	b := withDirectories(t, lock.Rule{Match: "/**", MaxAge: time.Hour})
	holder, next := b.open("ada"), b.open("zoe")
	if _, _, _, err := holder.AcquireOrWait(b.ctx, "/a", nil); err != nil {
		t.Fatal(err)
	}
	b.disk.gone = func(h lock.Hold) bool {
		if err := b.table.HostGone(b.ctx, h); err != nil {
			t.Error(err)
		}
		return true
	}
	if h, _, _, err := next.AcquireOrWait(b.ctx, "/a", nil); err != nil || h.Token != 2 {
		t.Errorf("token %d, %v", h.Token, err)
	}
}

// Where locks have no directories, one look at the disk before the decision is enough, unless directories were moved after it.
func TestAFreeNameIsLookedAtAgainAfterDirectoriesWereMoved(t *testing.T) {
	b := withDirectories(t, lock.Rule{Match: "/l/*"})
	s := b.open("a")
	b.disk.make = func(lock.Name) error { return lock.ErrNotDirectory }
	b.disk.free = func() bool { return true }
	b.acquire(s, "/l/a")
	b.disk.free = func() bool {
		if err := s.Exclude(b.ctx, []lock.Name{"/l/b"}, func() error { return nil }); err != nil {
			t.Error(err)
		}
		return true
	}
	if h, _, _, err := s.AcquireOrWait(b.ctx, "/l/b", nil); !errors.Is(err, lock.ErrNotDirectory) {
		t.Errorf("after a move it was granted with token %d, %v", h.Token, err)
	}
}

// A program on the host removed the directory, and another job may have worked meanwhile. So the session that releases the lock is
// refused once; if it is not the session that acquired it, that one is refused, too.
func TestAReleaseReportsThatTheHostRemovedTheDirectory(t *testing.T) {
	b := withDirectories(t, lock.Rule{Match: "/x"})
	holder, s := b.open("a", "job"), b.open("a", "job")
	b.acquire(holder, "/x")
	b.disk.OnRemove(func(lock.Hold) error { return lock.ErrDirectoryGone })
	var lost *lock.LostError
	if err := s.Release(b.ctx, "/x"); !errors.As(err, &lost) || lost.Cause != lock.CauseHostGone || !errors.Is(err, lock.ErrNotHeld) {
		t.Errorf("the release returns %v", err)
	}
	records := b.log.(*locktest.Memory).Records()
	if end := records[len(records)-1]; end.Kind != lock.Ended || end.Cause != lock.CauseHostGone {
		t.Errorf("the last record is %d %q", end.Kind, end.Cause)
	}
	if err := s.Release(b.ctx, "/x"); err != lock.ErrNotHeld {
		t.Errorf("the second release returns %v", err)
	}
	if err := holder.Release(b.ctx, "/x"); !errors.As(err, &lost) {
		t.Errorf("the release of the holder returns %v", err)
	}
}

// A start does not fail because a directory cannot be read: the lock stays held with its directory.
func TestALockWithAnUnreadableDirectoryStaysHeld(t *testing.T) {
	b := withDirectories(t)
	h := b.acquire(b.open("a"), "/locks/x")
	b.disk.restore = func(lock.Hold) (lock.DirectoryID, bool, error) {
		return lock.DirectoryID{}, false, errors.New("permission denied")
	}
	b.start()
	if status, _ := b.table.Get("/locks/x"); len(status.Holds) != 1 || status.Holds[0].Directory != h.Directory {
		t.Errorf("held by %v, before by %v", status.Holds, h)
	}
}

// sharing are rules of a lock that the accounts a and b hold together.
var sharing = lock.Rule{Match: "/x", Contention: &lock.Contention{Shared: []string{"a", "b"}}}

// The directory of a shared lock is missing at a start. It is made once, and no hold ends because the directory is new.
func TestAStartMakesTheDirectoryOfASharedLockOnce(t *testing.T) {
	b := withDirectories(t, sharing)
	b.acquire(b.open("a"), "/x")
	b.acquire(b.open("b"), "/x")
	var onDisk lock.DirectoryID
	b.disk.restore = func(h lock.Hold) (lock.DirectoryID, bool, error) {
		if onDisk == (lock.DirectoryID{}) {
			onDisk.Inode = 100
			return onDisk, false, nil
		}
		return onDisk, onDisk != h.Directory, nil
	}
	b.start()
	status, _ := b.table.Get("/x")
	if len(status.Holds) != 2 || status.Holds[0].Directory != onDisk || status.Holds[1].Directory != onDisk {
		t.Errorf("the holds are %+v", status.Holds)
	}
}

// A program on the host removes the directory of a shared lock. All its holds end, so the next session is not refused.
func TestAllHoldsOfARemovedDirectoryEnd(t *testing.T) {
	b := withDirectories(t, sharing)
	b.acquire(b.open("a"), "/x")
	b.acquire(b.open("b"), "/x")
	b.disk.gone = func(lock.Hold) bool { return true }
	b.acquire(b.open("c"), "/x")
}

// A sweep removes directories without a lock. It keeps that of a grant under way, at or below the name.
func TestALockIsTakenBeforeItsDirectoryIsMade(t *testing.T) {
	b := withDirectories(t)
	b.disk.make = func(lock.Name) error {
		if !b.table.HeldWithin("/locks/x/y") || !b.table.HeldWithin("/locks/x") || b.table.HeldWithin("/locks/z") {
			t.Error("the name of a grant under way is not taken")
		}
		return nil
	}
	b.acquire(b.open("a"), "/locks/x/y")
}

// A session that does not poll leaves the queue at the end of its time, so the next one gets the lock.
func TestASessionThatDoesNotPollLeavesTheQueue(t *testing.T) {
	b := withDirectories(t, lock.Rule{Match: "/x", Contention: &lock.Contention{Wait: time.Minute}})
	a := b.open("a")
	b.acquire(a, "/x")
	silent := b.queue(b.open("b"), "/x")
	b.release(a, "/x", nil)
	b.pass(time.Minute)
	b.acquire(b.open("c"), "/x")
	if _, over, err := silent.Poll(b.ctx); !over || !errors.Is(err, lock.ErrHeld) {
		t.Errorf("over: %v, %v", over, err)
	}
}

// A wait for a free lock ends with the reason why the lock was not granted.
func TestATimeoutReportsWhatDelaysAFreeLock(t *testing.T) {
	for _, c := range []struct {
		want  string
		delay func(b *scene, log *locktest.Memory, free func(), waiting *lock.Waiting)
	}{
		{"its files or a directory above it are being changed", func(b *scene, _ *locktest.Memory, _ func(), _ *lock.Waiting) {
			is, _ := b.table.Get("/dir/x")
			b.is(b.table.Break(b.ctx, "/dir/x", is.Holds[0].Token, lock.Owner{}, ""), nil) // lock_delay begins
			b.is(b.open("c").Exclude(b.ctx, []lock.Name{"/dir"}, func() error { b.pass(time.Minute); return nil }), nil)
		}},
		{"its directory is being made or removed", func(b *scene, _ *locktest.Memory, free func(), _ *lock.Waiting) {
			free()
			b.pass(time.Minute)
		}},
		{"held by host for 1m0s", func(b *scene, _ *locktest.Memory, free func(), waiting *lock.Waiting) {
			b.disk.make = func(n lock.Name) error { return &lock.HostError{Name: n, Since: b.clock.Now().Wall} }
			free()
			if _, over, err := waiting.Poll(b.ctx); over {
				b.Errorf("the wait is over: %v", err)
			}
			b.pass(time.Minute)
		}},
		{"not now: a test; nothing was changed", func(b *scene, _ *locktest.Memory, free func(), _ *lock.Waiting) {
			b.disk.OnRemove(func(lock.Hold) error { b.suspended.Store(true); return nil })
			free()
			b.clock.Advance(time.Minute)
			b.suspended.Store(false)
			b.table.Expire(b.ctx)
		}},
		{"the server could not record a grant in time", func(b *scene, log *locktest.Memory, free func(), _ *lock.Waiting) {
			log.SetFull(true)
			free()
			b.pass(time.Minute)
		}},
		{"the disk of the locks is full", func(b *scene, log *locktest.Memory, free func(), _ *lock.Waiting) {
			log.SetFull(true)
			free()
			ctx, stop := context.WithCancel(b.ctx)
			defer stop()
			go b.table.Run(ctx)
			synctest.Wait()
			b.pass(time.Minute)
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := withDirectories(t, lock.Rule{Match: "/dir/*", LockDelay: time.Second, Contention: &lock.Contention{Wait: time.Minute}})
			holder := b.open("a")
			b.acquire(holder, "/dir/x")
			waiting := b.queue(b.open("b"), "/dir/x")
			c.delay(b, b.log.(*locktest.Memory), func() { b.release(holder, "/dir/x", nil) }, waiting)
			if _, over, err := waiting.Poll(b.ctx); !over || err == nil || err.Error() != "waited 1m0s: "+c.want {
				t.Errorf("over: %v, %v, want %s", over, err, c.want)
			}
		})
	}
}

func TestALimitRefusalShowsTheQueue(t *testing.T) {
	b := newScene(t, lock.Rule{Match: "/p/*", Contention: &lock.Contention{Limit: 1, Wait: time.Minute}})
	b.acquire(b.open("a"), "/p/1")
	b.queue(b.open("b"), "/p/2")
	_, _, _, err := b.open("c").AcquireOrWait(b.ctx, "/p/3", nil)
	if err == nil || err.Error() != "the limit of 1 locks is reached; 1 in the queue" {
		t.Error(err)
	}
}

// A view agrees with MKD while the log is full or the server is suspended.
func TestAViewShowsThatNoGrantCanBeRecorded(t *testing.T) {
	b := newScene(t)
	s := b.open("a")
	next := func(want error) {
		t.Helper()
		v, err := s.View("/locks/x")
		b.is(err, nil)
		b.is(v.Next, want)
	}
	next(nil)
	b.log.(*locktest.Memory).SetFull(true)
	next(lock.ErrHeld)
	b.suspended.Store(true)
	if v, _ := s.View("/locks/x"); !errors.As(v.Next, new(*lock.SuspendedError)) {
		t.Errorf("during a suspension: %v", v.Next)
	}
}

// A lock is not free while its directory is being made or removed, or its parent is being renamed.
func TestAViewShowsAChangeUnderWay(t *testing.T) {
	b := withDirectories(t)
	a, other := b.open("a"), b.open("b")
	looks := 0
	look := func() error {
		looks++
		if v, err := other.View("/locks/x"); !errors.Is(v.Next, lock.ErrHeld) {
			t.Errorf("look %d: MKD would return %v; %v", looks, v.Next, err)
		}
		return nil
	}
	b.disk.make = func(lock.Name) error { return look() }
	b.acquire(a, "/locks/x")
	b.disk.OnRemove(func(lock.Hold) error { return look() })
	b.release(a, "/locks/x", nil)
	b.is(a.Exclude(b.ctx, []lock.Name{"/locks"}, look), nil)
	if looks != 3 {
		t.Errorf("%d looks", looks)
	}
}

// A lock has no holder while its directory is made, and only the holder may acquire locks below it.
func TestNoMemberIsAcquiredWhileTheDirectoryOfItsGroupIsMade(t *testing.T) {
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := withDirectories(t, lock.Rule{Match: "/**"})
			a, other := b.open("a"), b.open("b")
			var member error
			var asked sync.WaitGroup
			b.disk.make = func(n lock.Name) error {
				if n != "/g" {
					return nil
				}
				asked.Go(func() { _, _, _, member = other.AcquireOrWait(b.ctx, "/g/x", nil) })
				synctest.Wait()
				if fails {
					return lock.ErrNotDirectory
				}
				return nil
			}
			_, _, _, err := a.AcquireOrWait(b.ctx, "/g", nil)
			asked.Wait()
			if fails {
				b.is(err, lock.ErrNotDirectory)
				b.is(member, nil)
				return
			}
			b.is(member, lock.ErrNotYours)
			b.release(a, "/g", nil)
		})
	}
}

// A lock becomes free while its group is being granted. The session that waits for it is refused right after the grant.
func TestASessionThatWaitsIsServedAfterTheGrantOfTheGroup(t *testing.T) {
	b := withDirectories(t, lock.Rule{Match: "/**", Contention: &lock.Contention{Wait: time.Minute}})
	a := b.open("a")
	b.acquire(a, "/g/x")
	w := b.queue(b.open("b"), "/g/x")
	b.disk.make = func(lock.Name) error { b.release(a, "/g/x", nil); return nil }
	b.acquire(b.open("c"), "/g")
	if _, over, err := w.Poll(b.ctx); !over || !errors.Is(err, lock.ErrNotYours) {
		t.Errorf("over: %v, %v", over, err)
	}
}
