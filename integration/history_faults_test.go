package integration

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

var historySeed = flag.Uint64("history.seed", 0, "seed of the histories with faults; 0: another one each time")

// The ages of the locks: a reload changes from one to the other.
const (
	youngAge = 600 * time.Millisecond
	oldAge   = 900 * time.Millisecond
)

// historyTables is a configuration under which holds end in many ways.
func historyTables(age time.Duration, directories bool) string {
	return fmt.Sprintf(`
[locks]
directories = %v
[files]
durable = false
[[lock]]
match = "/a_lock"
max_age = %q
on_disconnect = "release"
release = "session"
protects = ["/a.tsv"]
[[lock]]
match = "/b_lock"
max_age = %q
release = "session"
queue = "off"
protects = ["/b.tsv"]
[[lock]]
match = "/c_lock"
max_age = %q
on_disconnect = "release"
grace = "100ms"
lock_delay = "20ms"
release = "session"
protects = ["/c.tsv"]
`, directories, age, age, age)
}

// releasedAtEnd are the locks whose holds may end with their connection.
var releasedAtEnd = map[string]bool{"/a_lock": true, "/c_lock": true}

// history is a run of chroniclers against a server, with faults.
type history struct {
	t           testing.TB
	s           *server
	p           *proxy
	directories bool
	young, old  time.Duration // the ages that a lock has at least and at most
	lives       time.Duration // if not 0: what one has that is taken now
	random      *rand.Rand
	seed        uint64
	until       time.Time
	running     sync.WaitGroup

	mu       sync.Mutex
	ops      []*op
	kills    []span // of the server
	stopped  int
	killed   int
	reloads  int
	breaks   int
	failures []string
}

// op is one operation as it was told.
type op struct {
	client int
	owner  string
	lives  time.Duration // how long a lock does that was taken then; 0: as the history says
	begin  note
	end    note // Ended is false if the end was never told
}

// span is a time in which something happened.
type span struct{ from, to int64 }

// newHistory starts a prepared server and notes what is done to it.
func newHistory(t testing.TB, s *server, directories bool, lasts time.Duration) *history {
	t.Helper()
	seed := *historySeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-history.seed=%d", seed)
	for _, name := range historyLocks {
		s.write(fileOf(name), string(historyText(0)))
	}
	s.configure(historyTables(youngAge, directories))
	s.start()
	h := &history{
		t: t, s: s, p: startProxy(t, seed), directories: directories, random: rand.New(rand.NewPCG(seed, 3)), seed: seed,
		young: youngAge, old: oldAge, until: time.Now().Add(lasts),
	}
	h.reach()
	return h
}

// client runs a chronicler until its time is over, or until somebody kills it, and returns its process.
func (h *history) client(id int, stops bool) *exec.Cmd {
	h.t.Helper()
	stopping := ""
	if stops {
		stopping = "stops"
	}
	left := max(time.Until(h.until), time.Millisecond)
	line := goChild(h.t, "chronicle", h.p.address(), strconv.Itoa(id), strconv.FormatUint(h.seed, 10), left.String(), stopping)
	cmd := command(h.t, line[0], line[1:]...)
	cmd.Stderr = h.s.log
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		h.t.Fatal(err)
	}
	h.running.Go(func() {
		open := make(map[int]*op)
		for notes := json.NewDecoder(out); ; {
			var n note
			if notes.Decode(&n) != nil {
				break
			}
			h.noted(cmd, id, open, n)
		}
		if err := cmd.Wait(); err != nil && !strings.Contains(err.Error(), "killed") {
			h.fail("client %d: %v", id, err)
		}
	})
	return cmd
}

func (h *history) fail(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failures = append(h.failures, fmt.Sprintf(format, args...))
}

func (h *history) noted(cmd *exec.Cmd, id int, open map[int]*op, n note) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case n.Stops:
		h.stopped++
		// It is stopped for longer than any age: that is what the test is about.
		time.AfterFunc(oldAge+100*time.Millisecond, func() { _ = cmd.Process.Signal(syscall.SIGCONT) })
	case n.Ended:
		open[n.Seq].end = n
		delete(open, n.Seq)
	default:
		o := &op{client: id, owner: fmt.Sprintf("%d.%d", id, n.Conn), begin: n}
		open[n.Seq] = o
		h.ops = append(h.ops, o)
	}
}

// faults makes faults until the time is over: clients killed, the server killed, reloaded, locks broken.
func (h *history) faults(clients map[int]*exec.Cmd) {
	next := 100
	for turn := 0; time.Now().Before(h.until.Add(-time.Second)); turn++ {
		time.Sleep(time.Duration(100+h.random.IntN(200)) * time.Millisecond)
		switch turn % 6 {
		case 0, 3:
			ids := slices.Sorted(maps.Keys(clients))
			id := ids[h.random.IntN(len(ids))]
			_ = clients[id].Process.Kill()
			delete(clients, id)
			clients[next] = h.client(next, true)
			next++
			h.killed++
		case 1, 4:
			h.breakLock(historyLocks[h.random.IntN(len(historyLocks))])
		case 2:
			h.restart()
		case 5:
			h.reloads++
			h.s.configure(historyTables([]time.Duration{oldAge, youngAge}[h.reloads%2], h.directories))
			if r := h.s.reload(); r.status != 0 {
				h.fail("reload: %s", r.out)
			}
		}
	}
}

// restart kills the server and starts it again on the same state; clients reach it at the same address.
func (h *history) restart() {
	from := now()
	h.s.kill()
	h.mu.Lock()
	h.kills = append(h.kills, span{from, now()})
	h.mu.Unlock()
	h.s.start()
	h.reach()
}

// reach has the proxy lead to where the server listens now.
func (h *history) reach() {
	address := h.s.v4
	h.p.target.Store(&address)
}

func (h *history) breakLock(name string) {
	o := &op{client: -1, owner: "boss", begin: note{Verb: locktest.BREAK, Name: name, At: now()}}
	r := run(h.t, binary, "break", name, "--reason", "test", "--state", h.s.state)
	o.end = note{Ended: true, At: now(), Result: locktest.Done}
	switch {
	case r.status == 0:
		h.breaks++
	case strings.Contains(r.out, "not held"):
		o.end.Result = locktest.Refused
	default:
		h.fail("break: %s", r.out)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, o)
}

// finish waits for the clients, ends what is left in the network, and reads the files a last time.
func (h *history) finish() {
	h.running.Wait()
	h.p.close()
	c := h.s.session("other")
	c.want(200, "TYPE I")
	for _, name := range historyLocks {
		o := &op{client: -2, owner: "reader", begin: note{Verb: locktest.RETR, Name: name, At: now()}}
		content, err := c.retrieve("RETR " + fileOf(name))
		if err != nil {
			h.t.Fatal(err)
		}
		value, err := strconv.Atoi(string(content[:19]))
		if err != nil {
			h.t.Fatal(err)
		}
		o.end = note{Ended: true, At: now(), Result: locktest.Done, Value: value}
		h.ops = append(h.ops, o)
	}
}

// run has so many clients at it for a time, with faults.
func (h *history) run(clients int) {
	processes := make(map[int]*exec.Cmd)
	for id := range clients {
		processes[id+1] = h.client(id+1, id%2 == 0)
	}
	h.faults(processes)
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
			t.Errorf("too little was done, or a kind of fault is missing: %v", h.counts())
		})
	}
}

// historyOf is a history that was checked.
func historyOf(t *testing.T, directories bool, lasts time.Duration) *history {
	t.Helper()
	h := newHistory(t, newServer(t, ""), directories, lasts)
	h.run(count(6, 12))
	h.s.kill()
	for _, text := range h.failures {
		t.Error(text)
	}
	if wrong := h.complaint(); wrong != "" {
		t.Error(wrong)
	}
	t.Logf("%d operations: %v; %d clients killed, %d times one stopped; the server killed %d times, reloaded %d times; %d locks broken; network: %v",
		len(h.ops), h.counts(), h.killed, h.stopped, len(h.kills), h.reloads, h.breaks, h.p.cuts)
	return h
}

// enough reports whether each kind of operation and of fault is in it, so that it proves something.
func (h *history) enough() bool {
	counts := h.counts()
	for _, kind := range []string{"MKD done", "MKD refused", "RMD done", "RMD refused", "STOR done", "STOR refused", "RETR done"} {
		if counts[kind] < 5 {
			return false
		}
	}
	return h.killed > 0 && h.stopped > 0 && len(h.kills) > 0 && h.reloads > 0 && h.breaks > 0 && counts["STOR unknown"]+counts["MKD unknown"]+counts["RMD unknown"] >= 3
}
