//go:build linux

package etcd

import (
	"context"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// A server that cannot read the locks leaves the line, or no other server would take over.
func TestAServerDoesNotStandByForAnotherFormat(t *testing.T) {
	s := newScene(t, 1)
	s.ttl = short
	_, b, active, next := s.two()
	h := s.acquire(active, "/a_lock")
	later := func(key, value string) {
		s.must(b, func(ctx context.Context, client *clientv3.Client) error {
			_, err := client.Put(ctx, key, value)
			return err
		})
	}
	if kv, err := b.get(t.Context(), b.keys.format()); err != nil || string(kv.GetValue()) != ownFormat {
		t.Errorf("the stored format is %q, %v", kv.GetValue(), err)
	}
	later(b.keys.format(), "3")
	s.until("the standby leaves", func() bool { return len(s.servers(b)) == 1 })
	const want = `in format "3", and this one reads only format "2": upgrade this server`
	if got := b.StandbyState(); !strings.Contains(got, want) {
		t.Errorf("the state of the standby is %q", got)
	}
	s.resign(active)
	if _, err := b.RaiseBase(t.Context(), 1); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("raise-base: %v", err)
	}
	later(b.keys.format(), ownFormat)
	second := s.takesOver(next)
	later(b.keys.lock(h.Name, h.Token), "\x01\x00")
	if _, err := second.Load(t.Context()); err == nil || !strings.Contains(err.Error(), `the lock "/a_lock" with token 1 is damaged`) {
		t.Errorf("a lock of another format: %v", err)
	}
}
