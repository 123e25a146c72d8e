//go:build linux

package etcd

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// A stopped process or a sleeping machine does not renew its lease, but its clock continues.
func TestAServerIsSuspendedBeforeItsLeaseEnds(t *testing.T) {
	s := newScene(t, 1)
	s.ttl = short
	relay := s.etcd.Relays()[0]
	o := s.options()
	o.Endpoints = []string{relay.Endpoint()}
	active := s.campaign(s.open(o))
	if err := active.Valid(); err != nil {
		t.Fatal(err)
	}
	if err := active.Ready(); err != nil {
		t.Fatal(err)
	}
	relay.HoldBack()
	s.clock.Advance(s.ttl)
	if err := active.Valid(); !isSuspended(err) {
		t.Errorf("Valid: %v", err)
	}
	if err := active.Ready(); !isSuspended(err) {
		t.Errorf("Ready: %v", err)
	}
	relay.Heal()
	s.until("it continues", func() bool { return active.Valid() == nil })
	s.acquire(active, "/a_lock")
}

// etcd may have renewed the lease at any time after the server sent the request.
func TestALeaseCountsFromWhenItsRenewalWasSent(t *testing.T) {
	s := newScene(t, 1)
	relay := s.etcd.Relays()[0]
	o := s.options()
	o.Endpoints = []string{relay.Endpoint()}
	o.RequestTimeout = patience
	clock := &countingClock{Clock: s.clock}
	o.Clock = clock
	active := s.campaign(s.open(o))
	active.halt()
	relay.HoldReplies()
	renewed := make(chan error, 1)
	sent, before := s.clock.Now().Boot, clock.times.Load()
	go func() { renewed <- active.renew(t.Context()) }()
	s.until("the renewal reads the clock", func() bool { return clock.times.Load() > before })
	read := s.clock.Now().Boot
	s.clock.Advance(time.Hour)
	relay.Heal()
	if err := <-renewed; err != nil {
		t.Fatal(err)
	}
	until := time.Duration(active.deadline.Load()) - patience + o.Margin
	if until < sent || until > read {
		t.Errorf("the lease counts from %v, but the renewal was sent between %v and %v", until, sent, read)
	}
}

// countingClock counts the readings of a clock.
type countingClock struct {
	lock.Clock
	times atomic.Int64
}

func (c *countingClock) Exact() lock.Instant {
	defer c.times.Add(1)
	return c.Clock.Exact()
}

// Without a quorum the server is suspended when its lease is over by its clock. It continues with the quorum.
func TestALostQuorumSuspends(t *testing.T) {
	s := newScene(t, 3)
	s.ttl = short
	c := s.open(s.options())
	active := s.campaign(c)
	h := s.acquire(active, "/a_lock")
	leader := s.etcd.LeaderIndex()
	for i := range 3 {
		if i != leader {
			s.etcd.Stop(i)
		}
	}
	s.clock.Advance(s.ttl)
	if err := active.Valid(); !isSuspended(err) {
		t.Errorf("Valid: %v", err)
	}
	status, err := c.Status(t.Context())
	if err == nil || strings.Contains(err.Error(), "rpc error") {
		t.Errorf("status: %v", err)
	}
	if found := status.Members[leader]; found.Err != nil {
		t.Errorf("the running member: %v", found.Err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := active.Wait(ctx, active.Append([]lock.Record{active.grant("/b_lock")}), true); !errors.Is(err, lock.ErrUncertain) {
		t.Errorf("without quorum: %v", err)
	}
	for i := range 3 {
		if i != leader {
			s.etcd.Continue(i)
		}
	}
	s.etcd.Ready()
	s.until("it continues", func() bool { return active.Valid() == nil })
	s.release(active, h)
}
