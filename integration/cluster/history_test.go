//go:build linux

package cluster

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

// historyTables are rules with ages that do not end during a history. Other tests check ages. A server that takes over right after its start
// uses its wall clock, which is wrong here.
var historyTables = harness.HistoryTables(24 * time.Hour)

// history records the commands of clients and their replies.
type history struct {
	harness.Record
	c       *cluster
	seed    uint64
	clients sync.WaitGroup
	enough  chan struct{} // closed when the clients must end

	mu   sync.Mutex
	runs map[string]*run // by owner: the process that receives its operations
}

func newHistory(c *cluster, seed uint64) *history {
	h := &history{c: c, seed: seed, enough: make(chan struct{}), runs: make(map[string]*run)}
	for _, name := range harness.HistoryLocks {
		c.write(c.t, harness.FileOf(name), harness.HistoryText(0))
	}
	return h
}

// sentTo records the process that receives an owner's operations.
func (h *history) sentTo(owner string, r *run) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.runs[owner] = r
}

// haste is the time that a client waits for a reply.
const haste = 3 * time.Second

// start starts clients, which run until finish.
func (h *history) start(clients int) {
	for id := range clients {
		random := rand.New(rand.NewPCG(h.seed, uint64(id+1)))
		c := &harness.Client{
			ID: id + 1, Random: random, Record: &h.Record,
			Login: func(owner string) (*harness.Session, error) {
				addresses := h.c.addresses()
				random.Shuffle(len(addresses), func(i, j int) { addresses[i], addresses[j] = addresses[j], addresses[i] })
				return h.login(addresses, owner, account)
			},
			Boss: func(of *harness.Session, owner string) (*harness.Session, error) {
				return h.login([]string{of.Address()}, owner, "boss")
			},
		}
		h.clients.Go(func() {
			c.Run(func() bool {
				select {
				case <-h.enough:
					return true
				default:
					return false
				}
			})
		})
	}
}

// login opens a session with a server that accepts it, and records the server's process.
func (h *history) login(addresses []string, owner, name string) (*harness.Session, error) {
	before := make(map[string]*run)
	for _, address := range addresses {
		before[address] = h.c.server(address).process()
	}
	s, err := harness.LoginAny(addresses, name, haste)
	if err != nil {
		return nil, err
	}
	r := h.c.server(s.Address()).process()
	if r != before[s.Address()] {
		s.Conn.Close()
		return nil, errors.New("the process has changed meanwhile")
	}
	h.sentTo(owner, r)
	return s, nil
}

// finish ends the clients and reads all files.
func (h *history) finish() {
	h.c.t.Helper()
	close(h.enough)
	h.clients.Wait()
	h.ReadAll(h.c.t, h.c.session(h.c.t, "other"))
}

// terms returns the processes that were active, in order.
func (c *cluster) terms() []*run {
	var all []*run
	for _, s := range c.servers {
		s.mu.Lock()
		for _, r := range s.runs {
			if r.listens != 0 {
				all = append(all, r)
			}
		}
		s.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b *run) int { return int(a.epoch) - int(b.epoch) })
	return all
}

// wrong returns the errors of a finished history; "": none. It ends the servers. An operation without a reply is over when the next server listens: an
// earlier server may have no effect after that.
func (h *history) wrong() string {
	h.c.t.Helper()
	terms := h.c.terms()
	until := func(o *harness.Op) int64 {
		until := int64(math.MaxInt64)
		to := h.runs[o.Owner]
		for _, r := range terms {
			if to != nil && to.epoch != 0 && r.epoch > to.epoch {
				until = min(until, r.listens)
			}
		}
		return until
	}
	return strings.Join(slices.DeleteFunc(append(h.Failures(), locktest.CheckHistory(harness.Operations(h.Ops(), 0, 0, until)), h.wrongInEtcd()),
		func(text string) bool { return text == "" }), "\n")
}
