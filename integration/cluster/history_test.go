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

// historyTables are rules under which no age is over during a history: ages are proved elsewhere, and a server that was started just
// before it takes over goes by a wall clock, which is skewed here.
var historyTables = harness.HistoryTables(24 * time.Hour)

// history is what clients did and were told.
type history struct {
	harness.Record
	c       *cluster
	seed    uint64
	clients sync.WaitGroup
	enough  chan struct{} // closed when the clients are to end

	mu   sync.Mutex
	runs map[string]*run // the process that each owner's operations are sent to
}

func newHistory(c *cluster, seed uint64) *history {
	h := &history{c: c, seed: seed, enough: make(chan struct{}), runs: make(map[string]*run)}
	for _, name := range harness.HistoryLocks {
		c.write(c.t, harness.FileOf(name), harness.HistoryText(0))
	}
	return h
}

// sentTo notes to which process an owner's operations are sent.
func (h *history) sentTo(owner string, r *run) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.runs[owner] = r
}

// haste is how long a client waits for a reply.
const haste = 3 * time.Second

// start has so many clients at it until finish.
func (h *history) start(clients int) {
	for id := range clients {
		random := rand.New(rand.NewPCG(h.seed, uint64(id+1)))
		c := &harness.Client{
			ID: id + 1, Random: random, Teller: &h.Record,
			Login: func(owner string) (*harness.Session, error) { // as clients do that know all addresses
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

// login opens a session with the server that lets it in, and notes which process that is.
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
		return nil, errors.New("nobody knows which process that is")
	}
	h.sentTo(owner, r)
	return s, nil
}

// finish ends the clients and reads the files a last time.
func (h *history) finish() {
	h.c.t.Helper()
	close(h.enough)
	h.clients.Wait()
	h.ReadAll(h.c.t, h.c.session(h.c.t, "other"))
}

// terms are the processes that were active, in order.
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

// wrong says what is wrong with all that happened, after finish; "": nothing. It ends the servers. An operation of which nobody knows what became
// is over when the next server listens: nothing that was sent to an earlier one may have an effect after that.
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
	return strings.Join(slices.DeleteFunc(append(h.Failures(), locktest.Wrong(harness.Operations(h.Ops(), 0, 0, until)), h.wrongInEtcd()),
		func(text string) bool { return text == "" }), "\n")
}
