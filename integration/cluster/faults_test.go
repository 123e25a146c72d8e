//go:build linux

package cluster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/etcdtest"
	"github.com/ftplockd/ftplockd/integration/harness"
)

// The minimum of a history.
const (
	leastFailovers = 5
	leastOps       = 20 // of each kind
)

// historyTTL is the shortest ttl that etcd supports.
const historyTTL = 2 * time.Second

// fault is a fault of a cluster under load.
type fault struct {
	name string
	do   func(h *history, random *rand.Rand, active *server)
}

// faults has all faults. Most end a term; the others must do no harm.
var faults = []fault{
	{"active server killed", func(h *history, _ *rand.Rand, a *server) {
		h.untilNextTerm(a.kill)
		a.resume()
	}},
	{"active server stopped and continued", func(h *history, _ *rand.Rand, a *server) {
		r := a.process()
		h.untilNextTerm(a.stop)
		a.cont()
		h.exits(r)
	}},
	{"active server stopped for a while", func(h *history, random *rand.Rand, a *server) {
		a.stop()
		between(random, 100*time.Millisecond, historyTTL)
		a.cont()
	}},
	{"active server steps down", func(h *history, _ *rand.Rand, a *server) {
		h.untilNextTerm(func() {
			var status int
			var out string
			harness.Await(h.c.t, "a server stands by", func() bool { // it may have lost its place with etcd's majority
				status, out = h.c.servers[0].run(h.c.t, "cluster", "step-down")
				return !strings.Contains(out, "no server stands by")
			})
			if status != 0 || !strings.Contains(out, ") has taken over, after ") {
				h.Fail("step-down: %d %s", status, out)
			}
		})
	}},
	{"active server terminated", func(h *history, _ *rand.Rand, a *server) {
		h.untilNextTerm(a.terminate)
		a.resume()
	}},
	{"active server cut off from etcd", func(h *history, _ *rand.Rand, a *server) {
		r := a.process()
		h.untilNextTerm(func() { a.toEtcd((*etcdtest.Relay).Cut) })
		a.toEtcd((*etcdtest.Relay).Heal)
		h.exits(r)
	}},
	{"requests of the active server arrive late", func(h *history, _ *rand.Rand, a *server) {
		r := a.process()
		h.untilNextTerm(func() { a.toEtcd((*etcdtest.Relay).HoldBack) })
		a.toEtcd((*etcdtest.Relay).Heal)
		h.exits(r)
	}},
	{"requests that the active server gave up arrive", func(h *history, _ *rand.Rand, a *server) {
		begin := time.Now()
		a.toEtcd((*etcdtest.Relay).HoldBack)
		time.Sleep(historyTTL / 4) // longer than request_timeout
		a.toEtcd(func(r *etcdtest.Relay) { r.HealLate(begin.Add(historyTTL / 8)) })
		time.Sleep(historyTTL / 8)
		a.toEtcd((*etcdtest.Relay).Heal)
	}},
	{"one member does not receive requests", func(h *history, random *rand.Rand, a *server) {
		one := a.relays[random.IntN(len(a.relays))]
		one.HoldBack()
		between(random, time.Second, 2*time.Second)
		one.Heal()
	}},
	{"replies of etcd arrive late", func(h *history, random *rand.Rand, a *server) {
		a.toEtcd((*etcdtest.Relay).HoldReplies)
		between(random, 100*time.Millisecond, historyTTL/2)
		a.toEtcd((*etcdtest.Relay).Heal)
	}},
	{"etcd is slow", func(h *history, random *rand.Rand, a *server) {
		a.toEtcd(func(r *etcdtest.Relay) { r.Delay(150 * time.Millisecond) })
		between(random, time.Second, 2*time.Second)
		a.toEtcd((*etcdtest.Relay).Heal)
	}},
	{"etcd's leader killed", func(h *history, random *rand.Rand, _ *server) {
		i := h.c.etcd.LeaderIndex()
		h.c.etcd.Kill(i)
		between(random, 0, 2*time.Second)
		h.c.etcd.Restart(i)
	}},
	{"etcd's leader stopped", func(h *history, random *rand.Rand, _ *server) {
		i := h.c.etcd.LeaderIndex()
		h.c.etcd.Stop(i)
		between(random, time.Second, 3*time.Second)
		h.c.etcd.Continue(i)
	}},
	{"etcd's leader and the active server killed", func(h *history, _ *rand.Rand, a *server) {
		i := h.c.etcd.LeaderIndex()
		h.untilNextTerm(func() {
			h.c.etcd.Kill(i)
			a.kill()
		})
		h.c.etcd.Restart(i)
		a.resume()
	}},
	{"all but one member of etcd stopped", func(h *history, random *rand.Rand, _ *server) {
		stays := random.IntN(3)
		for i := range 3 {
			if i != stays {
				h.c.etcd.Stop(i)
			}
		}
		between(random, historyTTL/2, 2*historyTTL)
		for i := range 3 {
			if i != stays {
				h.c.etcd.Continue(i)
			}
		}
	}},
	{"all but one member of etcd killed", func(h *history, random *rand.Rand, _ *server) {
		stays := random.IntN(3)
		for i := range 3 {
			if i != stays {
				h.c.etcd.Kill(i)
			}
		}
		between(random, historyTTL/2, 2*historyTTL)
		for i := range 3 {
			if i != stays {
				h.c.etcd.Restart(i)
			}
		}
	}},
}

// between waits for a random time.
func between(random *rand.Rand, least, most time.Duration) {
	time.Sleep(least + time.Duration(random.Int64N(int64(most-least))))
}

// untilNextTerm ends the term of the active server by do, and waits for the next one.
func (h *history) untilNextTerm(do func()) {
	h.c.t.Helper()
	n := len(h.c.terms())
	do()
	harness.Await(h.c.t, "another server takes over", func() bool { return len(h.c.terms()) > n })
}

// exits waits for the end of a deposed process.
func (h *history) exits(r *run) {
	h.c.t.Helper()
	select {
	case <-r.exited:
	case <-time.After(patience):
		h.c.t.Fatalf("%s was deposed and does not end", r.server.name)
	}
}

// quiet waits until etcd answers and clients acquire locks, and returns the active server.
func (h *history) quiet() *server {
	h.c.t.Helper()
	h.c.etcd.Ready()
	granted := h.Counts()["MKD done"]
	harness.Await(h.c.t, "locks are granted", func() bool { return h.Counts()["MKD done"] >= granted+10 })
	return h.c.active(h.c.t)
}

// The replies to random clients are linearizable over random faults, and every change in etcd follows the rules of the keeper.
func TestHistoriesOverFailoversAreLinearizable(t *testing.T) {
	t.Parallel()
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	for begin := time.Now(); ; seed++ {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { oneHistory(t, seed) })
		if t.Failed() || time.Since(begin) >= *long {
			return
		}
	}
}

func oneHistory(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	h := newHistory(start(t, setup{servers: 3, members: 3, ttl: historyTTL, tables: historyTables, skewed: true}), seed)
	h.start(5)
	order := slices.Clone(faults)
	random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	begin := time.Now()
	for _, f := range order {
		at := time.Since(begin)
		f.do(h, random, h.quiet())
		t.Logf("%.1fs: %s, %d terms", at.Seconds(), f.name, len(h.c.terms()))
	}
	h.quiet()
	harness.Await(t, "clients have done enough", func() bool { return h.Enough(leastOps) })
	h.finish()
	failovers := len(h.c.terms()) - 1
	t.Logf("%d operations in %v: %v; %d failovers", len(h.Ops()), time.Since(begin).Round(time.Second), h.Counts(), failovers)
	if failovers < leastFailovers {
		t.Errorf("%d failovers, want %d", failovers, leastFailovers)
	}
	if wrong := h.wrong(); wrong != "" {
		t.Error(wrong)
	}
}
