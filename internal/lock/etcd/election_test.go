//go:build linux

package etcd

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// servers are the keys of those that stand by, the active one first.
func (s *scene) servers(c *Cluster) (keys []string) {
	s.Helper()
	resp, err := c.members.txn(s.Context(), nil, []clientv3.Op{c.getServers()}, nil)
	if err != nil {
		s.Fatal(err)
	}
	for _, kv := range kvs(resp, 0) {
		keys = append(keys, string(kv.Key))
	}
	return keys
}

// two are an active server and one that stands by, on one prefix.
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
	// The first one has not noticed, and cannot change anything.
	if err := s.commit(active, active.endOf(h)); !errors.Is(err, lock.ErrUncertain) {
		t.Errorf("Wait of the deposed server: %v", err)
	}
	if err := active.Valid(); !errors.Is(err, ErrDeposed) || !isSuspended(err) {
		t.Errorf("Valid of the deposed server: %v", err)
	}
	s.held(second.c, "/a_lock")
}

// A server that comes to its turn by an old look takes over only if its key is still there, and none is older.
func TestOnlyTheOldestElectionKeyTakesOver(t *testing.T) {
	s := newScene(t, 1)
	a, b, active, next := s.two()
	second := s.servers(a)[1]
	late := newLog(b, 0, 0)
	kv, err := b.get(t.Context(), second)
	if err != nil {
		t.Fatal(err)
	}
	late.key, late.create = second, kv.CreateRevision
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
	if epoch, err := a.get(t.Context(), a.keys.epoch()); err != nil || number64(epoch) != uint64(active.Generation()) {
		t.Errorf("epoch %s, %v", epoch.GetValue(), err)
	}
}

// The key of a server that stands by goes, or its lease: it stands by again, at the end of the line.
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

// The member of etcd hangs that a standby was with: it keeps its place with another one.
func TestAStandbyLeavesAMemberThatHangs(t *testing.T) {
	s := newScene(t, 3)
	o := s.options()
	a := s.open(o)
	active := s.campaign(a)
	b := s.open(o)
	hangs := (s.etcd.LeaderIndex() + 1) % 3
	b.members.prefer(hangs)
	next := s.standBy(b)
	s.until("it stands by", func() bool { return len(s.servers(a)) == 2 })
	first := s.servers(a)[1]
	s.etcd.Stop(hangs)
	s.until("it asks another one", func() bool { return b.members.pick() != hangs })
	written := func() int64 { kv, _ := a.get(t.Context(), first); return kv.GetVersion() }
	before := written()
	s.until("it publishes its round trip", func() bool { return written() > before })
	s.resign(active)
	s.acquire(s.takesOver(next), "/a_lock")
}

// While etcd does not answer, a standby reports no active server.
func TestAStandbyReportsThatEtcdDoesNotAnswer(t *testing.T) {
	s := newScene(t, 1)
	_, b, _, next := s.two()
	if trouble := b.Trouble(); trouble != "" {
		t.Errorf("at first: %s", trouble)
	}
	s.etcd.Stop(0)
	s.until("etcd is silent", func() bool { return b.Trouble() == "etcd does not answer" })
	s.etcd.Continue(0)
	s.until("etcd answers", func() bool { return b.Trouble() == "" || len(next.active) > 0 }) // the active server does not look
}

func TestACampaignThatIsCancelledEnds(t *testing.T) {
	s := newScene(t, 1)
	a, b, _, next := s.two()
	next.cancel()
	if log := <-next.active; log != nil {
		t.Error("the standby has become active")
	}
	if got := s.servers(a); len(got) != 1 {
		t.Errorf("it has left a key: there are %q", got)
	}
	next = s.standBy(b)
	s.until("it stands by again", func() bool { return len(s.servers(a)) == 2 })
	s.etcd.Stop(0)
	next.cancel()
	select {
	case <-next.active:
	case <-time.After(patience):
		t.Error("while etcd hangs it goes on")
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
			} else if err := active.renew(t.Context()); !errors.Is(err, ErrDeposed) {
				t.Errorf("renew: %v", err)
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
	s.until("the standby knows who is active", func() bool { server, ok := b.Leader(); return ok && server.Name == "a" })
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
	if err := <-done; err != nil || server.Name != "b" {
		t.Errorf("StepDown: %+v, %v", server, err)
	}
	if second.Generation() != active.Generation()+1 {
		t.Errorf("epoch %d after %d", second.Generation(), active.Generation())
	}
	if got := s.holds(second.c); len(got) != 1 || got["/a_lock"].Token != h.Token {
		t.Errorf("got %+v, want token %d", got, h.Token)
	}
	if _, err := a.StepDown(t.Context()); err == nil {
		t.Error("StepDown without a standby succeeds")
	}
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

func TestOpenNeedsAMember(t *testing.T) {
	s := newScene(t, 1)
	s.etcd.Kill(0)
	o := s.options()
	if _, err := Open(t.Context(), o); err == nil {
		t.Error("Open succeeds")
	} else if text := err.Error(); !strings.Contains(text, ": dial tcp ") || strings.Contains(text, "rpc error") {
		t.Errorf("got %q", text)
	}
	if _, err := Open(t.Context(), Options{}); err == nil {
		t.Error("Open without endpoints succeeds")
	}
}

// A server does not stand by after a look that failed, nor for five looks after one that took too long.
func TestASlowServerStandsByAfterFiveQuickAnswers(t *testing.T) {
	const limit = 700 * time.Millisecond
	var w roundTrips
	if err := w.slow(limit); !errors.Is(err, errNotMeasured) {
		t.Errorf("before the first look: %v", err)
	}
	failed := errors.New("etcd is away")
	for i, look := range []struct {
		took time.Duration
		err  error
		slow bool
	}{
		{took: limit - 1}, {err: failed, slow: true}, {took: 1}, {took: limit, slow: true},
		{took: 1, slow: true}, {took: 1, slow: true}, {took: 1, slow: true}, {took: 1, slow: true}, {took: 1},
	} {
		w.add(look.took, look.err)
		if err := w.slow(limit); (err != nil) != look.slow || look.err != nil && !errors.Is(err, look.err) {
			t.Errorf("after look %d: %v, want an error: %v", i, err, look.slow)
		}
	}
}
