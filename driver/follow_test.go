package driver

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

// terms are servers that follow each other on one store, one tree and one directory for what belongs to the tree.
type terms struct {
	*locktest.Memory
	now atomic.Uint32 // the epoch of the active one
}

// term is the store as one server has it: only the active one can record anything.
type term struct {
	*terms
	epoch uint32
}

// lost has a store that does not tell what became of an adoption, and is suspended for that time.
type lost struct {
	term
	silent *atomic.Bool
}

func (l lost) Commit(ctx context.Context, c lock.Change) (lock.Token, error) {
	if l.silent.Load() {
		return 0, lock.ErrUncertain
	}
	return l.term.Commit(ctx, c)
}

func (l lost) Get(ctx context.Context, n lock.Name) (lock.Record, error) {
	if l.silent.Load() {
		return lock.Record{}, lock.ErrUncertain
	}
	return l.term.Get(ctx, n)
}

func (m term) Commit(ctx context.Context, c lock.Change) (lock.Token, error) {
	if m.now.Load() != m.epoch {
		return 0, &lock.SuspendedError{Reason: "another server takes over"}
	}
	return m.terms.Memory.Commit(ctx, c)
}

// startActive runs the first of several servers.
func startActive(t *testing.T, changes ...func(*setup)) *server {
	t.Helper()
	all := &terms{Memory: locktest.NewMemory()}
	all.now.Store(1)
	return start(t, append(changes, plainLocks, func(o *setup) { o.store, o.epoch = term{all, 1}, 1 })...)
}

// follow runs the next one, while the one before goes on and does not know of it.
func (s *server) follow() *server {
	s.t.Helper()
	before := s.setup.store.(term)
	next := *s.setup
	next.epoch++
	next.store = term{before.terms, next.epoch}
	before.now.Store(next.epoch)
	f := &server{t: s.t, root: s.root, state: s.state, clock: s.clock}
	f.run(&next)
	return f
}

const takenOver = "not now: another server takes over; nothing was changed, try again"

// The first server is stopped right between its last look whether it may publish and the rename, for as long as another one needs to take
// over. Nothing tells it so.
func TestAnUploadThatAnotherServerHasSweptIsNotPublished(t *testing.T) {
	for _, path := range []string{"/phone.tsv", "/x_lock/f", "/plain"} {
		s := startActive(t, protected)
		s.write("/phone.tsv", "old")
		s.write("/plain", "old")
		a := s.job("boss")
		a.want("MKD /phone_lock", "257 *")
		a.want("MKD /x_lock", "257 *")
		a.store("/x_lock/f", "old")
		d := a.data()
		a.want("STOR "+path, "150 *")
		d.Write([]byte("late"))
		var next *server
		stop := func() {
			s.asked.Store(nil)
			next = s.follow()
		}
		if path == "/plain" { // nothing is asked for it
			stop()
		} else {
			stops := 0
			hook := func() {
				if stops++; stops == 2 { // the second look is the last one
					stop()
				}
			}
			s.asked.Store(&hook)
		}
		d.Close()
		a.check("STOR "+path, a.reply(), "451 "+path+": what was sent is gone: another server has taken over, or somebody removed it; try again")
		b := next.job("boss")
		if got := b.fetch("RETR " + path); got != "old" {
			t.Errorf("%s holds %q", path, got)
		}
		b.want("MKD /phone_lock", "257 *")
		b.want("MKD /x_lock", "257 *")
		b.store(path, "new")
		s.halt()
		b.store(path, "newer")
		b.want("DELE "+path, "250 *")
	}
}

// What lies in a lock stays where it is when a server ends the lock that is none of its business any more.
func TestAServerThatWasFollowedLeavesWhatLiesInLocks(t *testing.T) {
	s := startActive(t)
	a := s.job("boss")
	for _, n := range []string{"/renewed_lock", "/adopted_lock", "/empty_lock"} {
		a.want("MKD "+n, "257 *")
		a.store(n+"/f", "old")
	}
	a.want("DELE /empty_lock/f", "250 *")
	s.clock.Advance(3 * time.Minute)
	next := s.follow()
	b := next.job("boss")
	b.want("SITE LOCK RENEW /renewed_lock", "200 *")
	b.want("MKD /adopted_lock", "257 *")
	b.want("SITE LOCK RENEW /empty_lock", "200 *")

	for _, n := range []string{"/adopted_lock", "/empty_lock"} {
		a.want("RMD "+n, "451 "+n+": "+takenOver)
	}
	a.want("RMD /renewed_lock", "550 *")
	s.pass(4 * time.Minute) // their age is over, as the first server has it
	if err := s.driver.Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	a.Close()
	s.halt()
	for _, n := range []string{"/renewed_lock", "/adopted_lock"} {
		if got := b.fetch("RETR " + n + "/f"); got != "old" {
			t.Errorf("%s/f holds %q", n, got)
		}
	}
	s.wantLeftovers("")
	b.store("/empty_lock/f", "new")
	b.want("DELE /empty_lock/f", "250 *")
	b.want("RMD /empty_lock", "250 *")
	next.pass(3 * time.Minute)
	next.wantLeftovers("/renewed_lock f old\n/adopted_lock f old")
	next.wantNothingHidden()
}

// A server that was killed, or stopped, when the end of a lock was recorded and what lies in it not moved yet.
func TestTheNextServerMovesAsideWhatTheOneBeforeHasLeft(t *testing.T) {
	s := startActive(t)
	a := s.as("phoneacc")
	a.want("MKD /gone_lock", "257 *")
	a.store("/gone_lock/f", "old")
	record, ok := s.insides.of("/gone_lock")
	if !ok {
		t.Fatal("no record")
	}
	memory := s.setup.store.(term).Memory
	memory.Outside("/gone_lock", lock.CauseBreak) // as a store has it whose server went no further
	next := s.follow()
	b := next.as("other")
	b.want("MKD /gone_lock", "257 *")
	b.store("/gone_lock/g", "new")
	if err := next.driver.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	next.wantLeftovers("/gone_lock f old")
	if err := s.insides.end(record); err != nil { // it goes on
		t.Error(err)
	}
	s.halt()
	if got := b.fetch("NLST /gone_lock"); got != "/gone_lock/g\r\n" {
		t.Errorf("listed %q", got)
	}
	b.want("DELE /gone_lock/g", "250 *")
	b.want("RMD /gone_lock", "250 *")
	next.wantNothingHidden()
}

// The adoption may have been made or not: until the store tells, the lock may be that of its holder.
func TestWhatLiesInALockStaysWhileNobodyKnowsWhoseItIs(t *testing.T) {
	var silent atomic.Bool
	s := startActive(t)
	s.halt()
	s.setup.store = lost{s.setup.store.(term), &silent}
	s.run(s.setup)
	a, a2 := s.job("boss"), s.job("boss")
	a.want("MKD /x_lock", "257 *")
	a.store("/x_lock/f", "old")
	silent.Store(true)
	a2.want("MKD /x_lock", "451 /x_lock: the server cannot tell whether that happened; *")
	s.suspended.Store(true)
	if err := s.driver.Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	s.wantLeftovers("")
	silent.Store(false)
	s.suspended.Store(false)
	memory := s.setup.store.(lost).Memory
	told := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(told)
		_ = s.table.Run(ctx)
	}()
	s.until("the table is told", func() bool {
		memory.Tell("/x_lock", lock.CauseUndeliver)
		status, _ := s.table.Get("/x_lock")
		return status.Holds[0].Token != 0
	})
	cancel()
	<-told
	if got := a.fetch("RETR /x_lock/f"); got != "old" {
		t.Errorf("it holds %q", got)
	}
}
