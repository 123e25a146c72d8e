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

// The least of a history that proves something.
const (
	leastFailovers = 5
	leastOps       = 20 // of each kind
)

// historyTTL is the shortest that etcd keeps to.
const historyTTL = 2 * time.Second

// fault is something that is done to a cluster while clients are at it.
type fault struct {
	name string
	do   func(h *history, random *rand.Rand, active *server)
}

// faults are all. Most end a term; the others must do no harm.
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
			harness.Await(h.c.t, "a server stands by", func() bool { // after a loss of etcd's majority they come to that one after the other
				status, out = h.c.servers[0].run(h.c.t, "cluster", "step-down")
				return !strings.Contains(out, "no server stands by")
			})
			if status != 0 {
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
	{"what the active server says to etcd comes late", func(h *history, _ *rand.Rand, a *server) {
		r := a.process()
		h.untilNextTerm(func() { a.toEtcd((*etcdtest.Relay).HoldBack) })
		a.toEtcd((*etcdtest.Relay).Heal)
		h.exits(r)
	}},
	{"what the active server has given up arrives", func(h *history, _ *rand.Rand, a *server) {
		begin := time.Now()
		a.toEtcd((*etcdtest.Relay).HoldBack)
		time.Sleep(historyTTL / 4) // longer than a request may take
		a.toEtcd(func(r *etcdtest.Relay) { r.HealLate(begin.Add(historyTTL / 8)) })
		time.Sleep(historyTTL / 8)
		a.toEtcd((*etcdtest.Relay).Heal)
	}},
	{"one way to etcd is silent", func(h *history, random *rand.Rand, a *server) {
		one := a.relays[random.IntN(len(a.relays))]
		one.HoldBack()
		between(random, time.Second, 2*time.Second)
		one.Heal()
	}},
	{"what etcd says comes late", func(h *history, random *rand.Rand, a *server) {
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

// between waits for a time at random.
func between(random *rand.Rand, least, most time.Duration) {
	time.Sleep(least + time.Duration(random.Int64N(int64(most-least))))
}

// untilNextTerm does something that ends the term of the active server, and returns when the next one has begun.
func (h *history) untilNextTerm(do func()) {
	h.c.t.Helper()
	n := len(h.c.terms())
	do()
	harness.Await(h.c.t, "another server takes over", func() bool { return len(h.c.terms()) > n })
}

// exits waits for the end of a process that was deposed.
func (h *history) exits(r *run) {
	h.c.t.Helper()
	select {
	case <-r.exited:
	case <-time.After(patience):
		h.c.t.Fatalf("%s was deposed and goes on", r.server.name)
	}
}

// quiet returns which server is active, when etcd answers and clients have got locks from it.
func (h *history) quiet() *server {
	h.c.t.Helper()
	h.c.etcd.Ready()
	granted := h.Counts()["MKD done"]
	harness.Await(h.c.t, "locks are granted", func() bool { return h.Counts()["MKD done"] >= granted+10 })
	return h.c.active(h.c.t)
}

// Clients, faults at random: what the clients were told has an order that makes sense, and so has what etcd has kept.
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
