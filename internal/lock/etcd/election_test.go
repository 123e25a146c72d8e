//go:build linux

package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// must makes a request to etcd beside the servers.
func (s *scene) must(c *Cluster, f call) {
	s.Helper()
	if err := c.members.do(s.Context(), f); err != nil {
		s.Fatal(err)
	}
}

func (s *scene) remove(c *Cluster, key string) {
	s.Helper()
	s.must(c, func(ctx context.Context, client *clientv3.Client) error {
		_, err := client.Delete(ctx, key)
		return err
	})
}

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

func TestAServerThatIsGoneIsFollowedWhenItsLeaseIsOver(t *testing.T) {
	s := newScene(t, 1)
	s.ttl = short
	_, _, active, next := s.two()
	token := s.Acquire(active, "/a_lock", "ada")
	active.halt()
	second := s.takesOver(next)
	// The first one does not know, and cannot change anything.
	if _, err := s.Commit(active, "/a_lock", token); !errors.Is(err, ErrDeposed) || !isSuspended(err) {
		t.Errorf("Commit of the deposed server: %v", err)
	}
	if err := active.Valid(); !errors.Is(err, ErrDeposed) {
		t.Errorf("Valid of the deposed server: %v", err)
	}
	s.HeldBy(second, "/a_lock", "ada")
}

// The next server begins its history where that of the last one ends, so a change that the last one still tries finds a line in its place.
func TestALineOfTheNextServerIsNotTakenForOnesOwn(t *testing.T) {
	s := newScene(t, 1)
	s.ttl = short
	_, _, active, next := s.two()
	s.Acquire(active, "/a_lock", "ada")
	active.halt()
	second := s.takesOver(next)
	w := &write{name: "/c_lock", value: "of the first server"}
	active.place(w)
	s.Acquire(second, "/b_lock", "ben")
	if a := active.try(t.Context(), w); a.outcome != over {
		t.Errorf("try: outcome %d, want %d: the term is over", a.outcome, over)
	}
	if a := active.settle(t.Context(), w); a.outcome != over {
		t.Errorf("settle: outcome %d, want %d: the term is over", a.outcome, over)
	}
	if a := active.afterNoSpace(t.Context(), w); a.outcome != refused {
		t.Errorf("afterNoSpace: outcome %d, want %d: it is refused", a.outcome, refused)
	}
}

func isSuspended(err error) bool {
	var suspended *lock.SuspendedError
	return errors.As(err, &suspended)
}

// Campaign of the library returns nil to two servers here, the later time to one with no key of its own in etcd.
func TestWithoutAnElectionKeyNobodyIsActive(t *testing.T) {
	s := newScene(t, 1)
	o := s.options()
	first := s.open(o)
	active := s.campaign(first)
	relay := s.etcd.Relays()[0]
	o.Self.Name, o.Endpoints = "b", []string{relay.Endpoint()}
	b := s.standBy(s.open(o))
	s.until("b stands by", func() bool { return len(s.servers(first)) == 2 })
	o.Self.Name, o.Endpoints = "c", s.etcd.Endpoints()
	c := s.standBy(s.open(o))
	s.until("c stands by", func() bool { return len(s.servers(first)) == 3 })
	gone := s.servers(first)[1]
	s.remove(first, gone)
	relay.Delay(100 * time.Millisecond) // so that c is the active one by then
	s.resign(active)
	second := s.takesOver(c)
	s.until("b is there again", func() bool { return len(s.servers(first)) == 2 })
	if keys := s.servers(first); keys[0] != second.key || keys[1] == gone {
		t.Errorf("the keys are %q; the active server's is %s, and that which was removed %s", keys, second.key, gone)
	}
	relay.Heal()
	s.Acquire(second, "/a_lock", "ada")
	s.resign(second)
	if third := s.takesOver(b); third.Generation() != second.Generation()+1 {
		t.Errorf("epoch %d after %d", third.Generation(), second.Generation())
	}
}

// The member of etcd hangs that a standby was with: it stands by again with another one.
func TestAStandbyLeavesAMemberThatHangs(t *testing.T) {
	s := newScene(t, 3)
	s.ttl = short
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
	s.until("it stands by again", func() bool { keys := s.servers(a); return len(keys) == 2 && keys[1] != first })
	s.resign(active)
	s.Acquire(s.takesOver(next), "/a_lock", "ada")
}

// Who is active is not known for as long as etcd does not answer.
func TestAStandbyKnowsThatEtcdDoesNotAnswer(t *testing.T) {
	s := newScene(t, 1)
	s.ttl = short
	_, b, _, next := s.two()
	if b.Silent() {
		t.Error("etcd is silent from the start")
	}
	s.etcd.Stop(0)
	s.until("etcd is silent", b.Silent)
	s.etcd.Continue(0)
	s.until("etcd answers", func() bool { return !b.Silent() || len(next.active) > 0 }) // who is active does not look
}

func TestACampaignThatIsCancelledEnds(t *testing.T) {
	s := newScene(t, 3)
	a, b, _, next := s.two()
	next.cancel()
	if store := <-next.active; store != nil {
		t.Error("the standby has become active")
	}
	if got := s.servers(a); len(got) != 1 {
		t.Errorf("it has left a key: there are %q", got)
	}
	next = s.standBy(b)
	s.until("it stands by again", func() bool { return len(s.servers(a)) == 2 })
	for i := range 3 {
		s.etcd.Stop(i)
	}
	next.cancel()
	select {
	case <-next.active:
	case <-time.After(patience):
		t.Error("without a quorum it goes on")
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
	for _, watches := range []bool{true, false} {
		t.Run(fmt.Sprint("watches=", watches), func(t *testing.T) { stepDown(t, watches) })
	}
}

func stepDown(t *testing.T, watches bool) {
	s := newScene(t, 1)
	a, b, active, next := s.two()
	if !watches {
		active.halt()
	}
	token := s.Acquire(active, "/a_lock", "ada")
	s.until("the standby knows who is active", func() bool { server, ok := b.Leader(); return ok && server.Name == "a" })
	done := make(chan error, 1)
	var server Server
	go func() {
		var err error
		server, err = b.StepDown(t.Context())
		done <- err
	}()
	if !watches {
		s.until("it learns of that with its next beat", func() bool {
			active.beat(t.Context())
			select {
			case <-active.Store.over:
				return true
			default:
				return false
			}
		})
		active = s.run(active.Store)
	}
	if err := s.over(active); !errors.Is(err, ErrStepDown) {
		t.Errorf("Run: %v", err)
	}
	if err := active.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(active, "/b_lock", 0, s.Hold("ada")); !errors.Is(err, lock.ErrClosed) {
		t.Errorf("Commit after Resign: %v", err)
	}
	second := s.takesOver(next)
	if err := <-done; err != nil || server.Name != "b" {
		t.Errorf("StepDown: %+v, %v", server, err)
	}
	if second.Generation() != active.Generation()+1 {
		t.Errorf("epoch %d after %d", second.Generation(), active.Generation())
	}
	if record := s.HeldBy(second, "/a_lock", "ada"); record.Revision != token || record.Holds[0].Token != token {
		t.Errorf("got %+v, want token %d", record, token)
	}
	if _, err := a.StepDown(t.Context()); err == nil {
		t.Error("StepDown without a standby succeeds")
	}
}

func TestStatusTellsWhoIsThere(t *testing.T) {
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
