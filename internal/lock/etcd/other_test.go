//go:build linux

package etcd

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/etcdtest"
)

// Endpoints of two clusters are a mistake by which two servers would be active, one in each.
func TestMembersOfAnotherClusterAreIgnored(t *testing.T) {
	s := newScene(t, 1)
	other := etcdtest.Start(t, 1)
	o := s.options()
	o.Endpoints = append(o.Endpoints, other.Endpoints()...)
	if c, err := Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), "not of one cluster") {
		t.Errorf("opened: %v", err)
		if err == nil {
			c.Close()
		}
	}
	// The wrong one is away at first.
	relay := other.Relays()[0]
	relay.Cut()
	o.Endpoints = []string{s.etcd.Endpoints()[0], relay.Endpoint()}
	a := s.open(o)
	b := s.open(o)
	relay.Heal()
	active := s.campaign(a)
	a.members.prefer(1)
	s.acquire(active, "/a_lock")
	b.members.prefer(1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if second, err := b.Campaign(ctx); err == nil {
		t.Error("two servers are active")
		second.Close()
	}
	a.members.prefer(1)
	if err := active.renew(t.Context()); err != nil {
		t.Error("its lease: ", err)
	}
}
