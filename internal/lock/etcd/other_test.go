//go:build linux

package etcd

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/etcdtest"
)

// With endpoints of two clusters two servers could be active, one in each.
func TestMembersOfAnotherClusterAreIgnored(t *testing.T) {
	s := newScene(t, 1)
	other := etcdtest.Start(t, 1)
	o := s.options()
	o.Endpoints = append(o.Endpoints, other.Endpoints()...)
	both := Open(o)
	if err := both.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "not of one cluster") {
		t.Errorf("got %v", err)
	}
	both.Close()
	// The wrong one is away at first.
	relay := other.Relays()[0]
	relay.Cut()
	o.Endpoints = []string{s.etcd.Endpoints()[0], relay.Endpoint()}
	a := s.open(o)
	b := s.open(o)
	relay.Heal()
	active := s.campaign(a)
	active.halt() // a renewal at the other cluster ends the term
	a.members.current.Store(1)
	s.acquire(active, "/a_lock")
	b.members.current.Store(1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if second, err := b.Campaign(ctx); err == nil {
		t.Error("two servers are active")
		second.Close()
	}
}
