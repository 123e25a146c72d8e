//go:build linux

package etcd

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// size returns the bytes of etcd's database that are in use.
func (s *scene) size(c *Cluster) int64 {
	s.Helper()
	var size int64
	s.must(c, func(ctx context.Context, client *clientv3.Client) error {
		if _, err := client.Defragment(ctx, s.etcd.Endpoints()[0]); err != nil { // it writes what etcd has in memory
			return err
		}
		status, err := client.Status(ctx, s.etcd.Endpoints()[0])
		if err == nil {
			size = status.DbSizeInUse
		}
		return err
	})
	return size
}

// etcd keeps every revision until it is compacted.
func TestAPairGrowsEtcdBySixHundredBytesAtMost(t *testing.T) {
	s := newScene(t, 1)
	o := s.options()
	o.Prefix, o.RequestTimeout = fmt.Sprintf("/ftplockd%02d/", prefixes.Add(1)), 10*time.Second
	c := s.open(o)
	active := s.campaign(c)
	const pairs = 200
	before := s.size(c)
	var grants, ends []lock.Record // in a few transactions, so that nearly no beat is counted
	for range pairs {
		r := active.grant("/locks/demo_lock")
		grants, ends = append(grants, r), append(ends, active.endOf(r.Hold))
	}
	if err := errors.Join(s.commit(active, grants...), s.commit(active, ends...), active.flush(t.Context())); err != nil {
		t.Fatal(err)
	}
	grown := (s.size(c) - before) / pairs
	t.Logf("%d bytes a pair", grown)
	if grown > 600 || grown < 100 {
		t.Errorf("a pair takes %d bytes, want 600 at most", grown)
	}
}
