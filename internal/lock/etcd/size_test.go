//go:build linux

package etcd

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ftplockd/ftplockd/integration/etcdtest"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// size returns the part of the database of etcd that is in use.
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
	active.halt() // beats are not counted
	const pairs = 200
	before := s.size(c)
	for range pairs {
		s.release(active, s.acquire(active, "/locks/demo_lock"))
	}
	if err := active.flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	grown := (s.size(c) - before) / pairs
	t.Logf("%d bytes a pair", grown)
	if grown > 600 || grown < 100 {
		t.Errorf("a pair takes %d bytes, want 600 at most", grown)
	}
}

// BenchmarkPairs compares grants and releases with bare transactions of etcd that put and delete a key, at several numbers of clients.
func BenchmarkPairs(b *testing.B) {
	s := sceneOn(b, etcdtest.Start(b, 3, "--unsafe-no-fsync=false"))
	c := s.open(s.options())
	active := s.campaign(c)
	var mu sync.Mutex
	log := func(i int) {
		mu.Lock()
		r := active.grant(lock.Name(fmt.Sprintf("/locks/%d_lock", i)))
		for active.MakeRoom(context.Background(), r.Hold.Token) != nil {
		}
		end := active.Append([]lock.Record{r})
		mu.Unlock()
		if err := active.Wait(context.Background(), end, true); err != nil {
			b.Error(err)
		}
		mu.Lock()
		end = active.Append([]lock.Record{active.endOf(r.Hold)})
		mu.Unlock()
		if err := active.Wait(context.Background(), end, true); err != nil {
			b.Error(err)
		}
	}
	client, err := c.members.use(0)
	if err != nil {
		b.Fatal(err)
	}
	bare := func(i int) {
		key := fmt.Sprintf("/bare/%d", i)
		fence := clientv3.Compare(clientv3.CreateRevision(active.key), "=", active.create)
		for _, op := range []clientv3.Op{clientv3.OpPut(key, "0123456789"), clientv3.OpDelete(key)} {
			if _, err := client.Txn(context.Background()).If(fence).Then(op).Commit(); err != nil {
				b.Error(err)
			}
		}
	}
	for _, clients := range []int{1, 8, 64, 256} {
		for name, pair := range map[string]func(int){"bare": bare, "log": log} {
			b.Run(fmt.Sprintf("clients=%d/%s", clients, name), func(b *testing.B) {
				var all sync.WaitGroup
				for i := range clients {
					all.Go(func() {
						for n := i; n < b.N; n += clients {
							pair(i)
						}
					})
				}
				all.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
			})
		}
	}
}
