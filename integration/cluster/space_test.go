//go:build linux

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/config"
	"github.com/ftplockd/ftplockd/integration/etcdtest"
	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/etcd"
)

const (
	// pairsPerSecond is the rate that docs/cluster-reference.md promises for any time.
	pairsPerSecond = 1000
	// leastPair is the least number of bytes that a pair adds to the database.
	leastPair = 300
	// quotasWritten is the number of quotas that a run writes.
	quotasWritten = 3
	// sweepEvery is the interval at which a server removes old history.
	sweepEvery = time.Minute
)

// documented returns a setting of etcd in docs/cluster.md.
func documented(t testing.TB, key string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/cluster.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^` + key + `: (\S+)$`).FindSubmatch(page)
	if found == nil {
		t.Fatalf("docs/cluster.md has no %s", key)
	}
	return string(found[1])
}

// With the settings of etcd in docs/cluster.md the database stays below its quota. The test divides quota, retention and history by one factor, and
// writes three times the quota. With -cluster.space it takes that long, and a second etcd, which keeps an hour of old revisions, becomes full.
func TestTheDocumentedSettingsSustainTheirRate(t *testing.T) {
	t.Parallel()
	quota, err := strconv.ParseInt(documented(t, "quota-backend-bytes"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	retention, err := time.ParseDuration(documented(t, "auto-compaction-retention"))
	if err != nil {
		t.Fatal(err)
	}
	factor, cases := int64(800), map[string]time.Duration{"as documented": retention}
	if *space > 0 {
		factor = quota / (pairsPerSecond * leastPair * int64(space.Seconds()) / quotasWritten)
		cases["an hour"] = time.Hour
	}
	for name, retention := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := load{t: t, quota: quota / factor}
			l.start(retention/time.Duration(factor), factor)
			filled := l.pairs(sweepEvery / time.Duration(factor))
			t.Logf("1:%d: %d pairs in %v (%.0f a second), %.1f quotas written; the database had %.1f MiB at most, of %.1f; full: %v", factor,
				l.done.Load(), l.took.Round(time.Second), float64(l.done.Load())/l.took.Seconds(), l.quotas(),
				float64(l.most)/(1<<20), float64(l.quota)/(1<<20), filled)
			if want := name == "an hour"; filled != want {
				t.Errorf("full: %v, want %v", filled, want)
			}
		})
	}
}

// load writes pairs of grants and releases to an etcd.
type load struct {
	t     *testing.T
	quota int64
	c     *etcd.Cluster
	log   *etcd.Log
	done  atomic.Int64 // pairs
	took  time.Duration
	most  int64 // bytes of the database

	mu   sync.Mutex // held for each grant, so that tokens are in order
	last lock.Token
}

func (l *load) start(retention time.Duration, factor int64) {
	l.t.Helper()
	members := etcdtest.Start(l.t, 3, "--quota-backend-bytes", fmt.Sprint(l.quota), "--auto-compaction-mode", "periodic", "--auto-compaction-retention", retention.String())
	clock := lock.NewSystemClock()
	l.c = etcd.Open(etcd.Options{
		Endpoints: members.Endpoints(), Prefix: prefix, Clock: clock, TTL: time.Minute, RequestTimeout: 10 * time.Second, HistorySize: config.Default().Etcd.HistorySize.Bytes / factor,
	})
	l.t.Cleanup(func() { l.c.Close() })
	var err error
	if l.log, err = l.c.Campaign(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = l.log.Run(ctx) })
	l.t.Cleanup(func() {
		cancel()
		running.Wait()
		l.log.Close()
	})
	loaded, err := l.log.Load(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	l.last = loaded.Last
}

// quotas returns the least number of quotas that have been written.
func (l *load) quotas() float64 { return float64(l.done.Load()*leastPair) / float64(l.quota) }

// pairs writes pairs at the rate until quotasWritten, or until etcd is full.
func (l *load) pairs(sweep time.Duration) (full bool) {
	l.t.Helper()
	ctx, cancel := context.WithCancel(l.t.Context())
	defer cancel()
	const clients = 64
	began := time.Now()
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			for due := began; ctx.Err() == nil; due = due.Add(clients * time.Second / pairsPerSecond) {
				time.Sleep(time.Until(due))
				if err := l.pair(ctx, lock.Name(fmt.Sprintf("/locks/job%d", i))); errors.Is(err, lock.ErrFull) {
					cancel()
				} else if err == nil {
					l.done.Add(1)
				}
			}
		})
	}
	all.Go(func() {
		for ctx.Err() == nil {
			time.Sleep(sweep)
			_ = l.log.Sweep(ctx)
		}
	})
	for ctx.Err() == nil && l.quotas() < quotasWritten {
		if space, err := l.c.Space(ctx); err == nil {
			l.most, full = max(l.most, space.Size), full || space.Full
		}
		time.Sleep(100 * time.Millisecond)
	}
	cancel()
	all.Wait()
	l.took = time.Since(began)
	if space, err := l.c.Space(l.t.Context()); err == nil {
		full = full || space.Full
	}
	return full
}

func (l *load) pair(ctx context.Context, n lock.Name) error {
	owner := lock.Owner{Account: "uploader", Address: "192.0.2.17", Session: 1<<40 | 4711}
	now := lock.NewSystemClock().Now()
	l.mu.Lock()
	for !l.log.Room(l.last + 1) {
		if err := l.log.MakeRoom(ctx, l.last+1); err != nil {
			l.mu.Unlock()
			return err
		}
	}
	l.last++
	h := lock.Hold{Name: n, Token: l.last, Owner: owner, Acquired: now, Renewed: now, Rule: &lock.Rule{
		Match: "/locks/**", MaxAge: 24 * time.Hour, MaxIdle: 30 * time.Minute, OnDisconnect: lock.KeepOnDisconnect, Release: lock.ReleaseAddress,
	}}
	end := l.log.Append([]lock.Record{{Kind: lock.Granted, Cause: lock.CauseAcquire, Hold: h, By: owner, At: now}})
	l.mu.Unlock()
	if err := l.log.Wait(ctx, end, true); err != nil {
		return err
	}
	end = l.log.Append([]lock.Record{{Kind: lock.Ended, Cause: lock.CauseRelease, Hold: h, By: owner, At: now}})
	return l.log.Wait(ctx, end, true)
}
