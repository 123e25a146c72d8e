//go:build linux

package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ftplockd/ftplockd/integration/etcdtest"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// relayed is an active server that asks one member by way of a relay, and has a second way to it that is never disturbed.
func (s *scene) relayed() (*Cluster, *term, *etcdtest.Relay) {
	s.Helper()
	relay := s.etcd.Relays()[0]
	o := s.options()
	o.Endpoints = []string{relay.Endpoint(), s.etcd.Endpoints()[0]}
	c := s.open(o)
	active := s.campaign(c)
	c.members.prefer(0)
	return c, active, relay
}

// prefer has a member asked next.
func (m *members) prefer(i int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.current = i
}

// intercept has f between a client and its member.
func (s *scene) intercept(c *Cluster, i int, f grpc.UnaryClientInterceptor) {
	s.Helper()
	config := c.members.config
	config.Endpoints = []string{c.members.all[i].endpoint}
	config.DialOptions = append(config.DialOptions[:len(config.DialOptions):len(config.DialOptions)], grpc.WithChainUnaryInterceptor(f))
	client, err := clientv3.New(config)
	if err != nil {
		s.Fatal(err)
	}
	one := c.members.all[i]
	one.mu.Lock()
	defer one.mu.Unlock()
	one.client.Close()
	one.client = client
}

// lines are the notes of what is in the history.
func (s *scene) lines(c *Cluster) map[string]int {
	s.Helper()
	notes := make(map[string]int)
	for entry, err := range c.entries(s.Context(), nil) {
		if err != nil {
			s.Fatal(err)
		}
		notes[entry.Note]++
	}
	return notes
}

// The transaction of an acquire is delivered when the lock was granted, and released, by later ones. Only the fence keeps it from being
// made: nothing else differs from when it was sent.
func TestATransactionThatComesLateIsNotMade(t *testing.T) {
	s := newScene(t, 1)
	c := s.open(func() Options {
		o := s.options()
		o.Endpoints = append(o.Endpoints, o.Endpoints[0])
		return o
	}())
	active := s.campaign(c)
	active.halt() // so that the transaction that is held back is the acquire
	var once sync.Once
	late := make(chan func() error, 1)
	s.intercept(c, 0, func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		held := false
		if method == "/etcdserverpb.KV/Txn" {
			once.Do(func() { held = true })
		}
		if !held {
			return invoke(ctx, method, request, reply, conn, opts...)
		}
		late <- func() error { return invoke(context.WithoutCancel(ctx), method, request, reply, conn, opts...) }
		return status.Error(codes.DeadlineExceeded, "held back")
	})
	c.members.prefer(0)
	token := s.Acquire(active, "/a_lock", "ada")
	s.Release(active, "/a_lock", token)
	if err := (<-late)(); err != nil {
		t.Fatal(err)
	}
	s.HeldBy(active, "/a_lock", "")
	if got := s.lines(c); got[""] != 2 {
		t.Errorf("%d lines in the history, want those of an acquire and a release", got[""])
	}
	s.Acquire(active, "/a_lock", "ben")
}

// Here the late one is delivered before the change is settled, or never.
func TestALostReplyIsNoFailure(t *testing.T) {
	for name, lose := range map[string]func(*etcdtest.Relay){"the reply is lost": (*etcdtest.Relay).HoldReplies, "the request is lost": (*etcdtest.Relay).Cut} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, 1)
			c, active, relay := s.relayed()
			lose(relay)
			token := s.Acquire(active, "/a_lock", "ada")
			if record := s.HeldBy(active, "/a_lock", "ada"); record.Revision != token || record.Holds[0].Token != token {
				t.Errorf("got %+v, want token %d", record, token)
			}
			if got := s.lines(c); got[""] != 1 {
				t.Errorf("%d lines in the history, want one", got[""])
			}
			c.members.prefer(0)
			s.Release(active, "/a_lock", token)
			relay.Heal()
			s.HeldBy(active, "/a_lock", "")
		})
	}
}

// Nobody can be asked what became of a change: the server is suspended, and tells later.
func TestAChangeThatCannotBeSettledSuspends(t *testing.T) {
	for _, made := range []bool{true, false} {
		t.Run(fmt.Sprint("made=", made), func(t *testing.T) {
			s := newScene(t, 1)
			relay := s.etcd.Relays()[0]
			o := s.options()
			o.Endpoints = []string{relay.Endpoint()}
			c := s.open(o)
			active := s.campaign(c)
			before := s.Acquire(active, "/b_lock", "ben")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			events := active.Watch(ctx)
			if err := active.Valid(); err != nil {
				t.Fatal(err)
			}
			if made {
				relay.HoldReplies()
			} else {
				relay.Cut()
			}
			if _, err := s.Commit(active, "/a_lock", 0, s.Hold("ada")); !errors.Is(err, lock.ErrUncertain) || isSuspended(err) {
				t.Fatalf("got %v, want that the result is unknown", err)
			}
			if err := active.Valid(); !isSuspended(err) {
				t.Errorf("Valid: %v", err)
			}
			if _, err := s.Commit(active, "/b_lock", before); !isSuspended(err) {
				t.Errorf("another change: %v", err)
			}
			short, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer stop()
			if _, err := active.Get(short, "/a_lock"); err == nil {
				t.Error("Get tells what cannot be known")
			}
			relay.Heal()
			var event lock.Event
			for event = range events {
				break
			}
			record, err := active.Get(t.Context(), "/a_lock")
			if err != nil {
				t.Fatal(err)
			}
			if event.Record.Name != "/a_lock" || event.Record.Revision <= before || (len(event.Record.Holds) == 1) != made ||
				len(record.Holds) != len(event.Record.Holds) || (event.Cause == lock.CauseAcquire) != made {
				t.Errorf("Watch yields %+v; Get %+v", event, record)
			}
			s.until("it goes on", func() bool { return active.Valid() == nil })
			s.Release(active, "/b_lock", before)
			if !made {
				s.Acquire(active, "/a_lock", "ada")
			}
		})
	}
}

// A change that is not settled is so once another server is active: it is made or never will be.
func TestADeposedServerSettlesToo(t *testing.T) {
	s := newScene(t, 1)
	s.ttl = short
	relay := s.etcd.Relays()[0]
	o := s.options()
	second := s.open(o)
	o.Endpoints = []string{relay.Endpoint()}
	first := s.campaign(s.open(o))
	next := s.standBy(second)
	s.until("the second server stands by", func() bool { return len(s.servers(second)) == 2 })
	relay.HoldReplies()
	if _, err := s.Commit(first, "/a_lock", 0, s.Hold("ada")); !errors.Is(err, lock.ErrUncertain) {
		t.Fatalf("got %v, want that the result is unknown", err)
	}
	first.halt() // etcd hears its renewals
	active := s.takesOver(next)
	s.HeldBy(active, "/a_lock", "ada")
	relay.Heal()
	if err := s.over(s.run(first.Store)); !errors.Is(err, ErrDeposed) {
		t.Errorf("Run: %v", err)
	}
	if record, err := first.Get(t.Context(), "/a_lock"); err != nil || len(record.Holds) != 1 {
		t.Errorf("Get: %+v, %v", record, err)
	}
}

// The change was made, its reply was lost, and then another server could take over: what was made is not reported as failed.
func TestADeposedServerReportsWhatItHasMade(t *testing.T) {
	s := newScene(t, 1)
	c := s.open(s.options())
	active := s.campaign(c)
	active.halt()
	side := s.open(s.options())
	s.intercept(c, 0, after(func(func() error) error {
		s.remove(side, active.key)
		return status.Error(codes.DeadlineExceeded, "the reply is lost")
	}))
	token := s.Acquire(active, "/a_lock", "ada")
	if record := s.HeldBy(active, "/a_lock", "ada"); record.Revision != token {
		t.Errorf("got %+v, want token %d", record, token)
	}
	if _, err := s.Commit(active, "/a_lock", token); !errors.Is(err, ErrDeposed) {
		t.Errorf("the next change: %v", err)
	}
}

// What is read of a name says nothing while a change of it may be under way.
func TestGetWaitsUntilAChangeIsSettled(t *testing.T) {
	s := newScene(t, 1)
	c := s.open(s.options())
	active := s.campaign(c)
	active.halt()
	var away atomic.Bool
	away.Store(true)
	s.intercept(c, 0, func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if away.Load() && method == "/etcdserverpb.KV/Txn" {
			return status.Error(codes.DeadlineExceeded, "away")
		}
		return invoke(ctx, method, request, reply, conn, opts...)
	})
	if _, err := s.Commit(active, "/a_lock", 0, s.Hold("ada")); !errors.Is(err, lock.ErrUncertain) {
		t.Fatalf("got %v, want that the result is unknown", err)
	}
	if record, err := active.Get(t.Context(), "/a_lock"); !errors.Is(err, lock.ErrUncertain) {
		t.Errorf("Get: %+v, %v", record, err)
	}
	if _, err := active.Get(t.Context(), "/b_lock"); err != nil {
		t.Errorf("of another name: %v", err)
	}
	away.Store(false)
	if record, err := active.Get(t.Context(), "/a_lock"); err != nil || len(record.Holds) != 0 {
		t.Errorf("Get: %+v, %v", record, err)
	}
	s.Acquire(active, "/a_lock", "ada")
}

func TestAClientThatHangsUpMakesNoUnknownOutcome(t *testing.T) {
	s := newScene(t, 1)
	c, active, relay := s.relayed()
	relay.Delay(100 * time.Millisecond)
	c.members.prefer(0)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := active.Commit(ctx, lock.Change{Name: "/a_lock", Holds: []lock.Hold{s.Hold("ada")}, Cause: lock.CauseAcquire})
	if err != nil {
		t.Error(err)
	}
	s.HeldBy(active, "/a_lock", "ada")
}

// A member that hangs is asked once, and then no more.
func TestAMemberThatHangsIsLeft(t *testing.T) {
	s := newScene(t, 3)
	o := s.options()
	o.RequestTimeout = 3 * time.Second // the other members answer in time
	c := s.open(o)
	active := s.campaign(c)
	hangs := (s.etcd.LeaderIndex() + 1) % 3
	c.members.prefer(hangs)
	s.etcd.Stop(hangs)
	for i := range 20 {
		token := s.Acquire(active, "/a_lock", "ada")
		if c.members.pick() == hangs {
			t.Fatalf("change %d: the member that hangs is asked again", i)
		}
		s.Release(active, "/a_lock", token)
	}
}
