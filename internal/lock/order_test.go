package lock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// fixture is a table whose time, log, disk and suspension a test moves.
type fixture struct {
	*testing.T
	*Table
	clock   *testClock
	log     *memoryLog
	invalid bool
	disk    *scriptedDisk
}

// scriptedDisk is a Disk whose steps a test replaces.
type scriptedDisk struct {
	Disk
	inode  uint64
	free   func() bool
	make   func(Name) error
	remove func(Hold) error
	gone   func(Hold) bool
}

func (d *scriptedDisk) Free(Name) bool { return d.free != nil && d.free() }

func (d *scriptedDisk) Make(_ context.Context, n Name) (DirectoryID, error) {
	if d.make != nil {
		if err := d.make(n); err != nil {
			return DirectoryID{}, err
		}
	}
	d.inode++
	return DirectoryID{Inode: d.inode}, nil
}

func (d *scriptedDisk) Remove(_ context.Context, h Hold, _ Cause) (string, error) {
	if d.remove != nil {
		return "", d.remove(h)
	}
	return "", nil
}

func (d *scriptedDisk) Gone(_ context.Context, h Hold) (bool, error) {
	return d.gone != nil && d.gone(h), nil
}

func (d *scriptedDisk) Freshen(Hold) {}

func newFixture(t *testing.T, directories bool, rules ...Rule) *fixture {
	b := &fixture{T: t, clock: newTestClock(), log: &memoryLog{}}
	o := Options{Log: b.log, Clock: b.clock, Rules: mustRules(rules...), Valid: func() error {
		if b.invalid {
			return &SuspendedError{Reason: "a test"}
		}
		return nil
	}}
	if directories {
		b.disk = &scriptedDisk{}
		o.Disk = b.disk
	}
	var err error
	if b.Table, err = NewTable(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *fixture) open(account, nonce string) *Session {
	return b.Open(Owner{Account: account, Address: "10.0.0.1", Nonce: nonce})
}

// get acquires a lock that has to be free.
func (b *fixture) get(s *Session, n Name) Hold {
	b.Helper()
	h, _, w, err := s.AcquireOrWait(b.Context(), n, nil)
	if err != nil || w != nil {
		b.Fatalf("%s: %v", n, err)
	}
	return h
}

// queue has the session wait for a lock.
func (b *fixture) queue(s *Session, n Name) (w *Waiting, woken *int) {
	b.Helper()
	woken = new(int)
	_, _, w, err := s.AcquireOrWait(b.Context(), n, func() { *woken++ })
	if err != nil || w == nil {
		b.Fatalf("%s: it does not wait: %v", n, err)
	}
	return w, woken
}

// pass lets time go by, second by second.
func (b *fixture) pass(d time.Duration) {
	for ; d > 0; d -= time.Second {
		b.clock.step(min(d, time.Second))
		b.Expire(b.Context())
	}
}

// A limit serves the sessions in the order in which they came, whatever names they wait for.
func TestALimitServesSessionsInOrder(t *testing.T) {
	b := newFixture(t, false, Rule{Match: "/p/*", Contention: &Contention{Limit: 1, Wait: time.Minute}})
	holder := b.open("a", "")
	b.get(holder, "/p/1")
	first, _ := b.queue(b.open("b", ""), "/p/2")
	second, _ := b.queue(b.open("c", ""), "/p/3")
	if err := holder.Release(t.Context(), "/p/1"); err != nil {
		t.Fatal(err)
	}
	_, one, _ := first.Poll(t.Context())
	_, two, _ := second.Poll(t.Context())
	if !one || two {
		t.Errorf("the first has it: %v, the second: %v", one, two)
	}
}

// The last command of a connection that has ended was a sign of life.
func TestTheIdleTimeOfAnEndedConnectionBeginsAtItsEnd(t *testing.T) {
	b := newFixture(t, false, Rule{Match: "/x", MaxIdle: time.Minute})
	s := b.open("a", "")
	b.get(s, "/x")
	b.clock.step(50 * time.Second)
	s.Close(t.Context())
	b.pass(50 * time.Second)
	if !b.Held("/x") {
		t.Error("it ended 50s after the last sign of life")
	}
	b.pass(11 * time.Second)
	if b.Held("/x") {
		t.Error("it stands 61s after the last sign of life")
	}
}

// A group that is too old ends, also if it would have ended earlier without the signs of life of a member.
func TestAGroupEndsAtItsAgeThoughAMemberIsAlive(t *testing.T) {
	for _, test := range []struct {
		name  string
		group Rule
		close bool
	}{
		{"idle", Rule{Match: "/*", MaxIdle: 10 * time.Second, MaxAge: time.Minute}, false},
		{"disconnected", Rule{Match: "/*", OnDisconnect: ReleaseOnDisconnect, Grace: 10 * time.Second, MaxAge: time.Minute}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newFixture(t, false, test.group, Rule{Match: "/*/*"})
			group, member := b.open("a", "job"), b.open("a", "job")
			b.get(group, "/g")
			b.get(member, "/g/m")
			if test.close {
				group.Close(t.Context())
			}
			for range 50 {
				b.pass(time.Second)
				member.Touch()
			}
			if !b.Held("/g") {
				t.Fatal("it ended though a member is alive")
			}
			for range 15 {
				b.pass(time.Second)
				member.Touch()
			}
			if b.Held("/g") {
				t.Error("it stands though it is too old")
			}
		})
	}
}

// The members keep a group that is too long without its connection. When all are idle it ends.
func TestADisconnectedGroupEndsWhenItsMembersAreIdle(t *testing.T) {
	b := newFixture(t, false, Rule{Match: "/*", OnDisconnect: ReleaseOnDisconnect, MaxIdle: time.Minute}, Rule{Match: "/*/*"})
	group, member := b.open("a", "job"), b.open("a", "job")
	b.get(group, "/g")
	b.get(member, "/g/m")
	group.Close(t.Context())
	b.pass(50 * time.Second)
	if !b.Held("/g") {
		t.Fatal("it ended though the session of a member is open")
	}
	b.pass(20 * time.Second)
	if b.Held("/g") {
		t.Error("it stands without any sign of life")
	}
}

// While the server is suspended, an undo waits. Then it takes back the last grant only.
func TestAnUndoInASuspensionTakesBackTheLastGrantOnly(t *testing.T) {
	b := newFixture(t, false, Rule{Match: "/x"})
	first, second := b.open("a", "job"), b.open("a", "job")
	before := b.get(first, "/x")
	adopted := b.get(second, "/x")
	b.invalid = true
	if err := second.Undo(t.Context(), "/x", adopted.Token); err != nil {
		t.Fatal(err)
	}
	b.invalid = false
	b.pass(2 * time.Second)
	if h, err := first.SpeaksFor("/x"); err != nil || h.Token != before.Token {
		t.Errorf("the job's lock after the undo of an adoption: %v", err)
	}
}

// The disk does not remove the directory of a grant that was not delivered at once. The server tries again.
func TestAnUndoThatFailsIsTriedAgain(t *testing.T) {
	b := newFixture(t, true, Rule{Match: "/x"})
	s := b.open("a", "")
	h := b.get(s, "/x")
	b.disk.remove = func(Hold) error { return errors.New("a bad sector") }
	s.Undo(t.Context(), "/x", h.Token)
	b.pass(time.Second)
	b.disk.remove = nil
	b.pass(5 * time.Second)
	if b.Held("/x") {
		t.Error("it stands")
	}
}

// A reload removes the rule of a name while its lock is being released, and the time of a waiting session is over.
func TestAWaitEndsThoughNoRuleMatchesAnyMore(t *testing.T) {
	b := newFixture(t, true, Rule{Match: "/x", Contention: &Contention{Wait: 5 * time.Second}})
	holder := b.open("a", "")
	b.get(holder, "/x")
	w, _ := b.queue(b.open("b", ""), "/x")
	b.disk.remove = func(Hold) error {
		b.SetRules(mustRules())
		b.pass(6 * time.Second)
		return nil
	}
	if err := holder.Release(t.Context(), "/x"); err != nil {
		t.Fatal(err)
	}
	if _, over, err := w.Poll(t.Context()); !over || !errors.Is(err, ErrNoRule) {
		t.Error(over, err)
	}
}

// A session waits for a directory of a program on the host to go, and gets an error about it when its time is over.
func TestASessionWaitsForADirectoryOfTheHost(t *testing.T) {
	b := newFixture(t, true, Rule{Match: "/x", Contention: &Contention{Wait: 5 * time.Second}})
	there := true
	b.disk.make = func(n Name) error {
		if there {
			return &HostError{Name: n, Since: b.clock.Now().Wall}
		}
		return nil
	}
	first, _ := b.queue(b.open("a", ""), "/x")
	var over bool
	var err error
	for range 5 {
		if _, over, err = first.Poll(t.Context()); over {
			t.Fatal(err)
		}
		b.pass(time.Second)
	}
	_, over, err = first.Poll(t.Context())
	var held *HeldError
	if !over || !errors.As(err, &held) || held.Holder.Account != HostAccount {
		t.Errorf("after its time: %v, %v", over, err)
	}
	second, _ := b.queue(b.open("b", ""), "/x")
	there = false
	b.pass(2 * time.Second)
	if h, over, err := second.Poll(t.Context()); !over || h.Token == 0 {
		t.Errorf("when the directory has gone: %v, %v", over, err)
	}
	if _, _, _, err := b.open("c", "").AcquireOrWait(t.Context(), "/x", nil); !errors.Is(err, ErrHeld) {
		t.Error(err)
	}
}

// The undo of an adoption gives the lock back to a connection that has ended. Its grace counts from then.
func TestALockThatGoesBackToAnEndedConnectionHasItsGrace(t *testing.T) {
	b := newFixture(t, false, Rule{Match: "/x", OnDisconnect: ReleaseOnDisconnect, Grace: 10 * time.Second})
	first, second := b.open("a", "job"), b.open("a", "job")
	b.get(first, "/x")
	adopted := b.get(second, "/x")
	first.Close(t.Context())
	if err := second.Undo(t.Context(), "/x", adopted.Token); err != nil {
		t.Fatal(err)
	}
	b.pass(5 * time.Second)
	if !b.Held("/x") {
		t.Error("it ended before its grace")
	}
	b.pass(6 * time.Second)
	if b.Held("/x") {
		t.Error("it stands after its grace")
	}
}

// The undo of an adoption does not bring back a hold whose session, with another nonce, has acquired the lock anew meanwhile.
func TestAnUndoneAdoptionGivesNoSessionTwoHolds(t *testing.T) {
	b := newFixture(t, false, Rule{Match: "/x", Contention: &Contention{Shared: []string{"a"}}})
	first, second := b.open("a", "job"), b.open("a", "job")
	b.get(first, "/x")
	adopted := b.get(second, "/x")
	if err := first.SetNonce("other"); err != nil {
		t.Fatal(err)
	}
	own := b.get(first, "/x")
	if err := second.Undo(t.Context(), "/x", adopted.Token); err != nil {
		t.Fatal(err)
	}
	if all := b.Holds(); len(all) != 1 || all[0].Token != own.Token {
		t.Errorf("after the undo there are %d holds, want the one with token %d", len(all), own.Token)
	}
	if err := first.Release(t.Context(), "/x"); err != nil || b.Held("/x") {
		t.Errorf("after the release the lock is held: %v, %v", b.Held("/x"), err)
	}
}

// While the log has no room, a session that waits keeps no other one from going on: only Run waits for room.
func TestAFullLogHoldsUpNoCloseAndNoUndo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, false, Rule{Match: "/*", Contention: &Contention{Wait: time.Hour}, OnDisconnect: ReleaseOnDisconnect})
		holder, other := b.open("a", ""), b.open("a", "")
		b.get(holder, "/x")
		undone := b.get(other, "/y")
		b.get(other, "/z")
		b.queue(b.open("b", ""), "/x")
		b.log.setFull(true)
		if err := holder.Release(t.Context(), "/x"); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := other.Undo(t.Context(), "/y", undone.Token); err != nil {
			t.Fatal(err)
		}
		other.Close(t.Context())
		if took := time.Since(began); took > 0 {
			t.Errorf("an undo and a close took %s", took)
		}
	})
}

// A session that waits gets its lock when the log has room again. The reaper is not woken for it.
func TestASessionThatWaitsGetsItsLockWhenTheLogHasRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, false, Rule{Match: "/*", Contention: &Contention{Wait: time.Hour}})
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go b.Table.Run(ctx)
		holder := b.open("a", "")
		b.get(holder, "/x")
		w, woken := b.queue(b.open("b", ""), "/x")
		<-b.Changed() // since the session waits
		b.NextExpiry()
		b.log.setFull(true)
		if err := holder.Release(t.Context(), "/x"); err != nil {
			t.Fatal(err)
		}
		for i := range 10 {
			b.open("c", "").Close(t.Context())
			select {
			case <-b.Changed():
				t.Fatalf("change %d wakes the reaper", i)
			default:
			}
		}
		time.Sleep(3 * time.Second)
		b.log.setFull(false)
		time.Sleep(3 * time.Second)
		if h, over, err := w.Poll(t.Context()); !over || err != nil || h.Token == 0 || *woken == 0 {
			t.Errorf("over %v, %v", over, err)
		}
	})
}

// While a refused MKD looks at the lock's directory, another look ends the hold.
func TestALockThatTheHostFreesDuringARefusalIsGranted(t *testing.T) {
	b := newFixture(t, true, Rule{Match: "/**", MaxAge: time.Hour})
	holder, next := b.open("ada", ""), b.open("zoe", "")
	if _, _, _, err := holder.AcquireOrWait(t.Context(), "/a", nil); err != nil {
		t.Fatal(err)
	}
	b.disk.gone = func(h Hold) bool {
		if err := b.HostGone(t.Context(), h); err != nil {
			t.Error(err)
		}
		return true
	}
	if h, _, _, err := next.AcquireOrWait(t.Context(), "/a", nil); err != nil || h.Token != 2 {
		t.Errorf("token %d, %v", h.Token, err)
	}
}

// Where locks have no directories, one look at the disk before the decision is enough, unless directories were moved after it.
func TestAFreeNameIsLookedAtAgainAfterDirectoriesWereMoved(t *testing.T) {
	b := newFixture(t, true, Rule{Match: "/l/*"})
	s := b.open("a", "")
	b.disk.make = func(Name) error { return ErrOccupied }
	b.disk.free = func() bool { return true }
	b.get(s, "/l/a")
	b.disk.free = func() bool {
		if err := b.Exclude(t.Context(), []Name{"/l/b"}, func() error { return nil }); err != nil {
			t.Error(err)
		}
		return true
	}
	if h, _, _, err := s.AcquireOrWait(t.Context(), "/l/b", nil); !errors.Is(err, ErrOccupied) {
		t.Errorf("after a move it was granted with token %d, %v", h.Token, err)
	}
}

// A program on the host removed the directory: perhaps another job has worked meanwhile, so the release is refused, once.
func TestAReleaseReportsThatTheHostRemovedTheDirectory(t *testing.T) {
	b := newFixture(t, true, Rule{Match: "/x"})
	s := b.open("a", "")
	b.get(s, "/x")
	b.disk.remove = func(Hold) error { return ErrDirectoryGone }
	var lost *LostError
	if err := s.Release(t.Context(), "/x"); !errors.As(err, &lost) || lost.Cause != CauseHostGone || !errors.Is(err, ErrNotHeld) {
		t.Errorf("the release returns %v", err)
	}
	if end := b.log.records[len(b.log.records)-1]; end.Kind != Ended || end.Cause != CauseHostGone {
		t.Errorf("the last record is %d %q", end.Kind, end.Cause)
	}
	if err := s.Release(t.Context(), "/x"); err != ErrNotHeld {
		t.Errorf("the second release returns %v", err)
	}
}
