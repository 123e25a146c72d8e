//go:build linux

package cluster

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ftplockd/ftplockd/integration/etcdtest"
	"github.com/ftplockd/ftplockd/integration/harness"
)

// TestFiguresOfFailovers measures the time from the end of the active server to the first 257 of the next one, for a client that tries
// all addresses every 10 ms.
func TestFiguresOfFailovers(t *testing.T) {
	if *withFigures == 0 {
		t.Skip("-cluster.figures is 0")
	}
	for _, ttl := range []time.Duration{2 * time.Second, 5 * time.Second} {
		for _, how := range []struct {
			name    string
			do, end func(*server)
		}{
			{"kill -9", (*server).kill, (*server).resume},
			{"SIGSTOP", (*server).stop, (*server).cont},
			{"cut off from etcd", func(s *server) { s.toEtcd((*etcdtest.Relay).Cut) }, func(s *server) { s.toEtcd((*etcdtest.Relay).Heal) }},
			{"SIGTERM", (*server).terminate, (*server).resume},
			{"step-down", func(s *server) { s.run(t, "cluster", "step-down") }, func(*server) {}},
		} {
			t.Run(fmt.Sprintf("ttl=%v/%s", ttl, how.name), func(t *testing.T) {
				c := start(t, setup{members: 3, ttl: ttl, tables: findTables})
				var took []time.Duration
				for range *withFigures {
					took = append(took, c.failover(t, how.do, how.end))
				}
				slices.Sort(took)
				t.Logf("%d rounds: least %v, median %v, most %v", len(took), took[0], took[len(took)/2], took[len(took)-1])
			})
		}
	}
}

// failover ends the active server and returns the time until another one grants a lock.
func (c *cluster) failover(t *testing.T, do, end func(*server)) time.Duration {
	t.Helper()
	harness.Await(t, "the other server stands by", func() bool { return len(c.line(t)) == len(c.servers) })
	a := c.active(t) // only now: a replaced server listens until it notices
	terms := len(c.terms())
	ended := make(chan struct{})
	begin := time.Now()
	go func() {
		defer close(ended)
		do(a)
	}()
	c.grants(t, c.others(a))
	took := time.Since(begin)
	<-ended
	end(a)
	if got := len(c.terms()); got <= terms {
		t.Errorf("%d terms, and there were %d", got, terms)
	}
	return took.Round(time.Millisecond)
}

// TestFiguresOfPairs measures pairs of MKD and RMD a second beside pairs of transactions on etcd, at several numbers of connections.
func TestFiguresOfPairs(t *testing.T) {
	if *withFigures == 0 {
		t.Skip("-cluster.figures is 0")
	}
	c := start(t, setup{members: 3, ttl: 10 * time.Second, tables: hour, etcd: []string{"--unsafe-no-fsync=false"}})
	a := c.active(t)
	client := c.client(t)
	defer client.Close()
	fence := clientv3.Compare(clientv3.CreateRevision("/fence"), "=", 0)
	for _, n := range []int{1, 8, 64, 256} {
		var sessions []*harness.Session
		for range n {
			s, err := harness.Login(nil, a.address, account, 10*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Conn.Close()
			sessions = append(sessions, s)
		}
		pairs := rate(n, func(i int) {
			for _, line := range []string{"MKD /job%d", "RMD /job%d"} {
				if r, err := sessions[i].Try(fmt.Sprintf(line, i)); err != nil || r.Code >= 300 {
					t.Error(r, err)
				}
			}
		})
		bare := rate(n, func(i int) {
			key := fmt.Sprint("/bare/", i)
			for _, op := range []clientv3.Op{clientv3.OpPut(key, strings.Repeat("x", 120)), clientv3.OpDelete(key)} {
				if _, err := client.Txn(client.Ctx()).If(fence).Then(op).Commit(); err != nil {
					t.Error(err)
				}
			}
		})
		t.Logf("%d connections: %.0f pairs/s by FTP, %.0f by transactions on etcd: %.2f", n, pairs, bare, pairs/bare)
	}
}

// rate returns the number of calls per second of n goroutines that repeat one call each.
func rate(n int, do func(i int)) float64 {
	const run = 4 * time.Second
	var done atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for i := range n {
		all.Go(func() {
			for time.Since(began) < run {
				do(i)
				done.Add(1)
			}
		})
	}
	all.Wait()
	return float64(done.Load()) / time.Since(began).Seconds()
}
