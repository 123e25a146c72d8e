//go:build linux

package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

// servers returns the election keys, the active server's first.
func (s *scene) servers(c *Cluster) (keys []string) {
	s.Helper()
	resp, err := c.members.txn(s.Context(), nil, []clientv3.Op{c.getServers()}, nil)
	if err != nil {
		s.Fatal(err)
	}
	for _, kv := range keysRead(resp, 0) {
		keys = append(keys, string(kv.Key))
	}
	return keys
}

// two starts an active server and a standby on one prefix.
func (s *scene) two() (a, b *Cluster, active *term, next *standby) {
	s.Helper()
	o := s.options()
	a = s.open(o)
	active = s.campaign(a)
	o.Self.Name = "b"
	b = s.open(o)
	next = s.standBy(b)
	s.until("the second server stands by", func() bool { return len(s.servers(b)) == 2 })
	return a, b, active, next
}

func TestAStandbyTakesOverWhenTheLeaseEnds(t *testing.T) {
	s := newScene(t, 1)
	s.ttl = short
	_, _, active, next := s.two()
	h := s.acquire(active, "/a_lock")
	active.halt()
	second := s.takesOver(next)
	// The first one has not noticed the end of its lease, and cannot change anything.
	if err := s.commit(active, active.endOf(h)); !errors.Is(err, lock.ErrUncertain) {
		t.Errorf("Wait of the deposed server: %v", err)
	}
	if err := active.Valid(); !errors.Is(err, ErrDeposed) || !isSuspended(err) {
		t.Errorf("Valid of the deposed server: %v", err)
	}
	s.held(second.c, "/a_lock")
}

// A server that acts on an old look takes over only if its key still exists and no key is older.
func TestOnlyTheOldestElectionKeyTakesOver(t *testing.T) {
	s := newScene(t, 1)
	a, b, active, next := s.two()
	second := s.servers(a)[1]
	late := newLog(b, 0, 0)
	kv, err := b.get(t.Context(), second)
	if err != nil {
		t.Fatal(err)
	}
	late.key, late.createRevision = second, kv.CreateRevision
	if err := late.takeOver(t.Context()); !errors.Is(err, errNotElected) {
		t.Errorf("while another key is older: %v", err)
	}
	next.cancel()
	<-next.active
	s.resign(active)
	if err := late.takeOver(t.Context()); !errors.Is(err, errNotElected) {
		t.Errorf("without any key: %v", err)
	}
	active = s.campaign(a)
	if err := late.takeOver(t.Context()); !errors.Is(err, errNotElected) {
		t.Errorf("without its key: %v", err)
	}
	if epoch, err := a.get(t.Context(), a.keys.epoch()); err != nil || parseDecimal(epoch) != uint64(active.Generation()) {
		t.Errorf("epoch %s, %v", epoch.GetValue(), err)
	}
}

// A standby that loses its key or its lease stands by again, behind the others.
func TestAStandbyThatLosesItsKeyStandsByAgain(t *testing.T) {
	s := newScene(t, 1)
	a, b, active, next := s.two()
	key := s.servers(a)[1]
	lease := func() int64 { kv, _ := a.get(t.Context(), key); return kv.GetLease() }()
	if err := a.revoke(t.Context(), clientv3.LeaseID(lease)); err != nil {
		t.Fatal(err)
	}
	s.until("it stands by again", func() bool { keys := s.servers(a); return len(keys) == 2 && keys[1] != key })
	s.remove(b, s.servers(a)[1])
	s.until("it stands by again", func() bool { return len(s.servers(a)) == 2 })
	s.resign(active)
	s.acquire(s.takesOver(next), "/a_lock")
}

// An operator sees each failure of etcd in the log of the standby, also one with the same error as an earlier failure.
func TestAStandbyLogsEachFailureOfEtcd(t *testing.T) {
	s := newScene(t, 1)
	var warnings atomic.Int32
	o := s.options()
	o.Log = slog.New(countWarnings{slog.DiscardHandler, &warnings})
	s.campaign(s.open(o))
	b := s.open(o)
	s.standBy(b)
	for failure := range 2 {
		s.until("the standby reads etcd", func() bool { return b.StandbyState() == "a is active" })
		warnings.Store(0)
		s.etcd.Stop(0)
		s.until("etcd does not answer", func() bool { return b.StandbyState() == "etcd does not answer" })
		s.until(fmt.Sprintf("failure %d is in the log", failure), func() bool { return warnings.Load() > 0 })
		s.etcd.Continue(0)
	}
}

type countWarnings struct {
	slog.Handler
	n *atomic.Int32
}

func (c countWarnings) Enabled(_ context.Context, level slog.Level) bool {
	return level == slog.LevelWarn
}

func (c countWarnings) Handle(context.Context, slog.Record) error {
	c.n.Add(1)
	return nil
}

func TestACampaignThatIsCancelledEnds(t *testing.T) {
	s := newScene(t, 1)
	a, b, _, next := s.two()
	next.cancel()
	if log := <-next.active; log != nil {
		t.Error("the standby has become active")
	}
	if got := s.servers(a); len(got) != 1 {
		t.Errorf("a key is left: %q", got)
	}
	next = s.standBy(b)
	s.until("it stands by again", func() bool { return len(s.servers(a)) == 2 })
	s.etcd.Stop(0)
	next.cancel()
	select {
	case <-next.active:
	case <-time.After(patience):
		t.Error("while etcd hangs the campaign does not end")
	}
}

func TestAServerThatLosesItsKeyOrItsLeaseIsDeposed(t *testing.T) {
	for _, lease := range []bool{false, true} {
		t.Run(fmt.Sprint("lease=", lease), func(t *testing.T) {
			s := newScene(t, 1)
			a, _, active, _ := s.two()
			if !lease {
				s.remove(a, s.servers(a)[0])
			} else if err := a.revoke(t.Context(), active.lease); err != nil {
				t.Fatal(err)
			}
			if err := s.over(active); !errors.Is(err, ErrDeposed) {
				t.Errorf("Run: %v", err)
			}
		})
	}
}

func TestStepDownHandsOver(t *testing.T) {
	s := newScene(t, 1)
	a, b, active, next := s.two()
	h := s.acquire(active, "/a_lock")
	s.until("the standby reads the active server", func() bool { return b.StandbyState() == "a is active" })
	done := make(chan error, 1)
	var server Server
	go func() {
		var err error
		server, err = b.StepDown(t.Context())
		done <- err
	}()
	if err := s.over(active); !errors.Is(err, ErrHandOver) {
		t.Errorf("Run: %v", err)
	}
	if err := active.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.commit(active, active.grant("/b_lock")); !errors.Is(err, lock.ErrUncertain) {
		t.Errorf("Wait after Resign: %v", err)
	}
	second := s.takesOver(next)
	var reported int64 // the revision of the first beat of the term
	s.until("two beats of the next server report that it takes over", func() bool {
		status, err := a.Status(t.Context())
		if err != nil || status.TakingOver.IsZero() || status.Servers[0].Name != "b" || !status.Suspended.IsZero() {
			return false
		}
		kv, err := a.get(t.Context(), a.keys.beat())
		if b, ok := decodeBeat(kv); err != nil || !ok || b.Term != second.Generation() {
			return false
		}
		if reported == 0 {
			reported = kv.ModRevision
		}
		return kv.ModRevision != reported
	})
	select {
	case err := <-done:
		t.Errorf("StepDown returns before the next server serves: %v", err)
	default:
	}
	second.Serve()
	if err := <-done; err != nil || server.Name != "b" {
		t.Errorf("StepDown: %+v, %v", server, err)
	}
	if status, err := a.Status(t.Context()); err != nil || !status.TakingOver.IsZero() {
		t.Errorf("it serves, and the status is %+v, %v", status, err)
	}
	if second.Generation() != active.Generation()+1 {
		t.Errorf("epoch %d after %d", second.Generation(), active.Generation())
	}
	if got := s.held(second.c, "/a_lock"); got[0].Token != h.Token {
		t.Errorf("token %d, want %d", got[0].Token, h.Token)
	}
	if _, err := a.StepDown(t.Context()); err == nil {
		t.Error("StepDown without a standby succeeds")
	}
}

func TestStepDownFailsIfTheSameServerServesAgain(t *testing.T) {
	s := newScene(t, 1)
	a, b, active, next := s.two()
	done := make(chan error, 1)
	go func() {
		_, err := b.StepDown(t.Context())
		done <- err
	}()
	if err := s.over(active); !errors.Is(err, ErrHandOver) {
		t.Errorf("Run: %v", err)
	}
	if err := active.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.resign(s.takesOver(next)) // it could not serve
	s.campaign(a).Serve()
	if err := <-done; err == nil || !strings.Contains(err.Error(), "a serves again: the next server could not") {
		t.Errorf("StepDown: %v", err)
	}
}

// A server that could not serve has no election key. When it could serve again, it stands by behind the others.
func TestAServerThatCouldNotServeDoesNotStandBy(t *testing.T) {
	s := newScene(t, 1)
	o := s.options()
	active := s.campaign(s.open(o))
	var reason atomic.Pointer[error]
	var polls atomic.Int32
	set := func(text string) { err := errors.New(text); reason.Store(&err) }
	o.Self.Name = "b"
	o.CanServe = func() error {
		polls.Add(1)
		if err := reason.Load(); err != nil {
			return *err
		}
		return nil
	}
	clock := locktest.NewRunningClock()
	o.Clock = clock
	b := s.open(o)
	next := s.standBy(b)
	s.until("it stands by", func() bool { return len(s.servers(b)) == 2 })
	for _, text := range []string{"no root", "no certificate"} {
		set(text)
		s.until("the status has the reason", func() bool {
			status, err := b.Status(t.Context())
			return err == nil && len(status.Servers) == 1 && len(status.NotReady) == 1 && status.NotReady[0].Name == "b" && status.NotReady[0].NotReady == text
		})
	}
	aside := func() *mvccpb.KeyValue {
		resp, err := b.members.txn(t.Context(), nil, []clientv3.Op{clientv3.OpGet(b.keys.allNotReady(), clientv3.WithPrefix())}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return firstKeyRead(resp, 0)
	}
	first, n := aside(), polls.Load()
	s.until("it polls", func() bool { return polls.Load() > n+3 })
	if kv := aside(); kv.GetCreateRevision() != first.GetCreateRevision() {
		t.Error("it replaces its key with the same reason")
	}
	if err := b.revoke(t.Context(), clientv3.LeaseID(first.GetLease())); err != nil {
		t.Fatal(err)
	}
	clock.Advance(s.ttl / 4)
	s.until("the status has the reason again after the end of its lease", func() bool { return aside() != nil })
	if _, err := b.StepDown(t.Context()); err == nil || !strings.Contains(err.Error(), "no server stands by") {
		t.Errorf("StepDown: %v", err)
	}
	o.Self.Name, o.CanServe = "c", nil
	third := s.standBy(s.open(o))
	s.until("a third server stands by", func() bool { return len(s.servers(b)) == 2 })
	reason.Store(nil)
	s.until("it stands by again", func() bool {
		status, err := b.Status(t.Context())
		return err == nil && len(status.Servers) == 3 && status.Servers[2].Name == "b" && len(status.NotReady) == 0
	})
	s.resign(active)
	s.resign(s.takesOver(third))
	s.takesOver(next)
}

func TestStatusListsMembersAndServers(t *testing.T) {
	s := newScene(t, 3)
	a, _, active, _ := s.two()
	s.until("there is a beat", func() bool { status, err := a.Status(t.Context()); return err == nil && status.Beat >= 0 })
	s.etcd.Kill((s.etcd.LeaderIndex() + 1) % 3)
	status, err := a.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if status.Epoch != active.Generation() || len(status.Servers) != 2 || status.Servers[0].Name != "a" || status.Servers[1].Name != "b" {
		t.Errorf("got %+v", status)
	}
	leaders, away := 0, 0
	for _, m := range status.Members {
		switch {
		case m.Err != nil:
			away++
		case m.Version == "" || m.Size == 0:
			t.Errorf("got %+v", m)
		case m.Leader:
			leaders++
		}
	}
	if leaders != 1 || away != 1 || len(status.Members) != 3 {
		t.Errorf("%d leaders, %d away: %+v", leaders, away, status.Members)
	}
}

func TestCheckNeedsAMember(t *testing.T) {
	s := newScene(t, 1)
	s.etcd.Kill(0)
	c := Open(s.options())
	defer c.Close()
	if err := c.Check(t.Context()); err == nil || !strings.Contains(err.Error(), ": dial tcp ") || strings.Contains(err.Error(), "rpc error") {
		t.Errorf("got %v", err)
	}
}
