package integration

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

var historySeed = flag.Uint64("history.seed", 0, "seed of the histories with faults; 0: another one each time")

// The ages of the locks. Each reload selects the other one.
const (
	youngAge = 600 * time.Millisecond
	oldAge   = 900 * time.Millisecond
)

// historyTables is the configuration under which the clients work.
func historyTables(age time.Duration, directories bool) string {
	return fmt.Sprintf("[locks]\ndirectories = %v\n%s", directories, harness.HistoryTables(age))
}

// history is a run of clients against a server, with faults.
type history struct {
	harness.Record
	t           testing.TB
	s           *server
	p           *proxy
	directories bool
	lives       time.Duration // if not 0: how long a lock does that is taken now
	random      *rand.Rand
	seed        uint64
	until       time.Time
	running     sync.WaitGroup

	stopped atomic.Int32

	kills   []span // of the server
	killed  int
	reloads int
	breaks  int
}

// span is a time in which something happened.
type span struct{ from, to int64 }

// newHistory starts a prepared server, and records what happens to it.
func newHistory(t testing.TB, s *server, directories bool, lasts time.Duration) *history {
	t.Helper()
	seed := *historySeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-history.seed=%d", seed)
	for _, name := range harness.HistoryLocks {
		s.write(harness.FileOf(name), string(harness.HistoryText(0)))
	}
	s.configure(historyTables(youngAge, directories))
	s.start()
	h := &history{
		t: t, s: s, p: startProxy(t, seed), directories: directories, random: rand.New(rand.NewPCG(seed, 3)), seed: seed, until: time.Now().Add(lasts),
	}
	h.reach()
	return h
}

// worker is a client that the test kills, as the end of its process does: all its connections end where it stands.
type worker struct {
	killed atomic.Bool
	conn   atomic.Pointer[net.Conn]
}

func (w *worker) kill() {
	w.killed.Store(true)
	if conn := w.conn.Load(); conn != nil {
		(*conn).Close()
	}
}

var errKilled = errors.New("killed")

// client starts a client, which works until its time is over or it is killed. If stops is true, it stops now and then for longer than any age.
func (h *history) client(id int, stops bool) *worker {
	w := new(worker)
	random := rand.New(rand.NewPCG(h.seed, uint64(id)))
	c := &harness.Client{
		ID: id, Random: random, Record: &h.Record, Cut: true,
		Login: func(string) (*harness.Session, error) {
			s, err := harness.LoginAny([]string{h.p.address()}, account, 1500*time.Millisecond)
			if err == nil {
				w.conn.Store(&s.Conn)
			}
			return s, err
		},
		Stop: func() error {
			if stops && random.IntN(12) == 0 {
				h.stopped.Add(1)
				time.Sleep(oldAge + 100*time.Millisecond)
			}
			if w.killed.Load() {
				return errKilled
			}
			return nil
		},
	}
	h.running.Go(func() { c.Run(func() bool { return w.killed.Load() || time.Now().After(h.until) }) })
	return w
}

// faults makes faults until the time is over: clients killed, the server killed, reloaded, locks broken.
func (h *history) faults(clients map[int]*worker) {
	next := 100
	for turn := 0; time.Now().Before(h.until.Add(-time.Second)); turn++ {
		time.Sleep(time.Duration(100+h.random.IntN(200)) * time.Millisecond)
		switch turn % 6 {
		case 0, 3:
			ids := slices.Sorted(maps.Keys(clients))
			id := ids[h.random.IntN(len(ids))]
			clients[id].kill()
			delete(clients, id)
			clients[next] = h.client(next, true)
			next++
			h.killed++
		case 1, 4:
			h.breakLock(harness.HistoryLocks[h.random.IntN(len(harness.HistoryLocks))])
		case 2:
			h.restart()
		case 5:
			h.reloads++
			h.s.configure(historyTables([]time.Duration{oldAge, youngAge}[h.reloads%2], h.directories))
			if r := h.s.reload(); r.status != 0 {
				h.Fail("reload: %s", r.out)
			}
		}
	}
}

// restart kills the server and starts it again on the same state; clients reach it at the same address.
func (h *history) restart() {
	from := harness.Now()
	h.s.kill()
	h.kills = append(h.kills, span{from, harness.Now()})
	h.s.start()
	h.reach()
}

// reach has the proxy lead to where the server listens now.
func (h *history) reach() {
	address := h.s.v4
	h.p.target.Store(&address)
}

func (h *history) breakLock(name string) {
	o := h.Begin(harness.Op{Client: -1, Owner: "boss", Verb: locktest.BREAK, Name: name})
	switch r := run(h.t, binary, "break", name, "--reason", "test", "--state", h.s.state); {
	case r.status == 0:
		h.breaks++
		h.End(o, locktest.Done)
	case strings.Contains(r.out, "not held"):
		h.End(o, locktest.Refused)
	default:
		h.Fail("break: %s", r.out)
	}
}

// finish waits for the clients, ends what is left in the network, and reads the files a last time.
func (h *history) finish() {
	h.running.Wait()
	h.p.close()
	c := h.s.session("other")
	c.Want(200, "TYPE I")
	h.ReadAll(h.t, c.Session)
	c.Want(221, "QUIT")
	c.Conn.Close()
}

// complaint says what is wrong with the history; "": nothing.
func (h *history) complaint() string {
	return locktest.CheckHistory(harness.Operations(h.Ops(), youngAge, oldAge, func(o *harness.Op) int64 {
		until := int64(math.MaxInt64)
		for _, k := range h.kills {
			if o.Call < k.from {
				until = min(until, k.to) // nothing of it is left
			}
		}
		return until
	}))
}

// run has so many clients at it for a time, with faults.
func (h *history) run(clients int) {
	workers := make(map[int]*worker)
	for id := range clients {
		workers[id+1] = h.client(id+1, id%2 == 0)
	}
	h.faults(workers)
	h.finish()
}

// Clients in a bad network that are killed, and stopped for longer than the age of their locks; a server that is killed,
// started again and reloaded; locks that are broken: what all of them were told has an order that makes sense. It runs
// beside no other test: some of those must be quick.
func TestHistoriesWithFaultsAreLinearizable(t *testing.T) {
	for _, directories := range []bool{true, false} {
		t.Run(fmt.Sprint("directories=", directories), func(t *testing.T) {
			t.Parallel()
			lasts := time.Duration(count(6, 120)) * time.Second
			h := historyOf(t, directories, lasts)
			for range 3 {
				if h.enough() {
					return
				}
				lasts *= 2 // a machine that is that slow needs more time
				h = historyOf(t, directories, lasts)
			}
			t.Errorf("too little was done, or a kind of fault is missing: %v", h.Counts())
		})
	}
}

// historyOf is a history that was checked.
func historyOf(t *testing.T, directories bool, lasts time.Duration) *history {
	t.Helper()
	h := newHistory(t, newServer(t, ""), directories, lasts)
	h.run(count(6, 12))
	h.s.wantNothingLeft(t)
	h.s.kill()
	for _, text := range h.Failures() {
		t.Error(text)
	}
	if wrong := h.complaint(); wrong != "" {
		t.Error(wrong)
	}
	t.Logf("%d operations: %v; %d clients killed, %d times one stopped; the server killed %d times, reloaded %d times; %d locks broken; network: %v",
		len(h.Ops()), h.Counts(), h.killed, h.stopped.Load(), len(h.kills), h.reloads, h.breaks, h.p.cuts)
	return h
}

// enough reports whether each kind of operation and of fault is in it, so that it proves something.
func (h *history) enough() bool {
	counts := h.Counts()
	return h.Enough(5) && h.killed > 0 && h.stopped.Load() > 0 && len(h.kills) > 0 && h.reloads > 0 && h.breaks > 0 && counts["STOR unknown"]+counts["MKD unknown"]+counts["RMD unknown"] >= 3
}
