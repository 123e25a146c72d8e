//go:build linux

package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

// historyTables are rules under which no age is over during a history: ages are proved elsewhere, and a server that was started just
// before it takes over goes by a wall clock, which is skewed here.
const historyTables = `
[files]
durable = false
[[lock]]
match = "/a_lock"
max_age = "24h"
max_idle = "0"
on_disconnect = "release"
release = "session"
protects = ["/a.tsv"]
[[lock]]
match = "/b_lock"
max_age = "24h"
max_idle = "0"
release = "session"
queue = "off"
protects = ["/b.tsv"]
[[lock]]
match = "/c_lock"
max_age = "24h"
max_idle = "0"
on_disconnect = "release"
grace = "200ms"
release = "session"
protects = ["/c.tsv"]
`

var historyLocks = []string{"/a_lock", "/b_lock", "/c_lock"}

// releasedAtEnd are the locks whose holds may end with their connection.
var releasedAtEnd = map[string]bool{"/a_lock": true, "/c_lock": true}

func fileOf(name string) string { return strings.TrimSuffix(name, "_lock") + ".tsv" }

// history is what clients did and were told.
type history struct {
	c       *cluster
	seed    uint64
	clients sync.WaitGroup
	enough  chan struct{} // closed when the clients are to end

	mu       sync.Mutex
	ops      []*op
	failures []string
}

// op is one operation of a client.
type op struct {
	client    int
	owner     string // a connection
	run       *run   // the process that it was sent to
	verb      locktest.Verb
	name      string
	value     int // that is written, or was read
	call, ret int64
	result    locktest.Result // "": nobody knows
	token     lock.Token
	nothing   bool // the server said that it changed nothing
}

func newHistory(c *cluster, seed uint64) *history {
	h := &history{c: c, seed: seed, enough: make(chan struct{})}
	for _, name := range historyLocks {
		c.write(c.t, fileOf(name), text(0))
	}
	return h
}

func (h *history) begin(o op) *op {
	h.mu.Lock()
	defer h.mu.Unlock()
	o.call = now()
	h.ops = append(h.ops, &o)
	return &o
}

func (h *history) end(o *op, result locktest.Result) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o.ret, o.result = now(), result
}

// without takes note that an operation changed nothing, whatever stood.
func (h *history) without(o *op) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o.nothing = true
}

func (h *history) fail(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failures = append(h.failures, fmt.Sprintf(format, args...))
}

// client takes locks, reads and writes their files and gives them back, at random. An owner to it is a connection.
type client struct {
	h      *history
	id     int
	random *rand.Rand
	s      *session
	run    *run
	conn   int
	value  int
}

// haste is how long a client waits for a reply.
const haste = 3 * time.Second

// start has so many clients at it until finish.
func (h *history) start(clients int) {
	for id := range clients {
		c := &client{h: h, id: id + 1, random: rand.New(rand.NewPCG(h.seed, uint64(id+1)))}
		h.clients.Go(c.live)
	}
}

func (c *client) live() {
	defer c.leave()
	for {
		if err := c.round(); err != nil {
			c.leave()
		}
		select {
		case <-c.h.enough:
			return
		case <-time.After(time.Duration(c.random.IntN(20_000)) * time.Microsecond):
		}
	}
}

func (c *client) leave() {
	if c.s != nil {
		c.s.conn.Close()
		c.s = nil
	}
}

// connect finds the active server as clients do that know all addresses.
func (c *client) connect() error {
	addresses := c.h.c.addresses()
	c.random.Shuffle(len(addresses), func(i, j int) { addresses[i], addresses[j] = addresses[j], addresses[i] })
	var before []*run
	for _, address := range addresses {
		before = append(before, c.h.c.server(address).process())
	}
	s, err := dialAny(addresses, account, haste)
	if err != nil {
		return err
	}
	c.run = c.h.c.server(s.address).process()
	if c.run != before[slices.Index(addresses, s.address)] {
		s.conn.Close()
		return errors.New("nobody knows which process that is")
	}
	c.s = s
	c.conn++
	if c.random.IntN(2) == 0 {
		_, err = s.ask("SITE WAIT 1")
	}
	return err
}

// round is one turn: the lock, its file, or what is to be refused.
func (c *client) round() error {
	if c.s == nil {
		if err := c.connect(); err != nil {
			return err
		}
	}
	name := historyLocks[c.random.IntN(len(historyLocks))]
	switch c.random.IntN(12) {
	case 0:
		return c.give(name)
	case 1:
		return c.store(name)
	case 2, 3:
		return c.retrieve(name)
	case 4:
		return c.breakLock("/b_lock") // or one would be held for ever when its holder is gone
	}
	held, err := c.take(name)
	if err != nil || !held {
		return err
	}
	if c.random.IntN(2) == 0 {
		if err := c.retrieve(name); err != nil {
			return err
		}
	}
	for range 1 + c.random.IntN(2) {
		if err := c.store(name); err != nil {
			return err
		}
	}
	if c.random.IntN(20) == 0 {
		return errors.New("it goes without giving the lock back")
	}
	return c.give(name)
}

func (c *client) begin(verb locktest.Verb, name string) *op {
	return c.h.begin(op{client: c.id, owner: fmt.Sprintf("%d.%d", c.id, c.conn), run: c.run, verb: verb, name: name})
}

// keptFrom matches refusals that say nothing about who holds the lock.
var keptFrom = regexp.MustCompile("others came earlier|deadlock|kept back")

// unknown is an error of an operation whose outcome nobody knows, unless the server said that it changed nothing.
func (c *client) unknown(o *op, err error) error {
	var no *refused
	if errors.As(err, &no) && no.reply.code == 451 && strings.Contains(no.reply.text, "nothing was changed") {
		c.h.without(o)
		time.Sleep(20 * time.Millisecond)
		return nil
	}
	return err
}

func (c *client) take(name string) (held bool, err error) {
	o := c.begin(locktest.MKD, name)
	r, err := c.s.say("MKD " + name)
	switch {
	case err != nil:
		return false, err
	case r.code == 257:
		o.token = lock.Token(token(r))
		c.h.end(o, locktest.Done)
		return true, nil
	case r.code == 550 && strings.Contains(r.text, "held by"):
		c.h.end(o, locktest.Refused)
	case r.code == 550 && keptFrom.MatchString(r.text):
		c.h.end(o, locktest.Queued)
	case r.code == 550 && strings.Contains(r.text, "not waited for any longer"): // the server ends
		c.h.without(o)
	case r.code >= 500:
		c.h.fail("MKD %s: %v", name, r)
	default:
		return false, c.unknown(o, &refused{r})
	}
	return false, nil
}

func (c *client) give(name string) error {
	o := c.begin(locktest.RMD, name)
	r, err := c.s.say("RMD " + name)
	switch {
	case err != nil:
		return err
	case r.code == 250:
		c.h.end(o, locktest.Done)
	case r.code == 550:
		c.h.end(o, locktest.Refused)
	default:
		return c.unknown(o, &refused{r})
	}
	return nil
}

func (c *client) store(name string) error {
	c.value++
	o := c.begin(locktest.STOR, name)
	o.value = c.id*1_000_000 + c.value
	err := c.s.store(fileOf(name), text(o.value), nil)
	var no *refused
	switch {
	case err == nil:
		c.h.end(o, locktest.Done)
	case errors.As(err, &no) && (no.reply.code == 550 || no.reply.code == 553):
		c.h.end(o, locktest.Refused)
	default:
		return c.unknown(o, err)
	}
	return nil
}

func (c *client) retrieve(name string) error {
	o := c.begin(locktest.RETR, name)
	content, err := c.s.retrieve(fileOf(name))
	if err != nil {
		return err
	}
	value, err := strconv.Atoi(string(content[:min(19, len(content))]))
	if err != nil || !bytes.Equal(content, text(value)) {
		c.h.fail("torn: %d bytes, %.40q", len(content), content)
		return nil
	}
	o.value = value
	c.h.end(o, locktest.Done)
	return nil
}

// breakLock has an administrator take the lock away from whoever holds it.
func (c *client) breakLock(name string) error {
	boss, err := dial(c.s.address, "boss", haste)
	if err != nil {
		return err
	}
	defer boss.conn.Close()
	if c.run != c.h.c.server(c.s.address).process() {
		return errors.New("nobody knows which process that is")
	}
	found, err := boss.say("SITE LOCK BREAK " + name)
	if err != nil {
		return err
	}
	_, after, ok := strings.Cut(found.text, "token ")
	if !ok {
		return nil // nobody holds it
	}
	number, _, _ := strings.Cut(after, ":")
	o := c.h.begin(op{client: c.id, owner: "boss", run: c.run, verb: locktest.BREAK, name: name})
	r, err := boss.say("SITE LOCK BREAK " + number + " " + name)
	switch {
	case err != nil:
		return nil
	case r.code == 200:
		c.h.end(o, locktest.Done)
	case r.code >= 500: // it has been given back meanwhile
		c.h.without(o)
	default:
		_ = c.unknown(o, &refused{r})
	}
	return nil
}

// finish ends the clients and reads the files a last time.
func (h *history) finish() {
	h.c.t.Helper()
	close(h.enough)
	h.clients.Wait()
	s := h.c.session(h.c.t, "other")
	for _, name := range historyLocks {
		o := h.begin(op{client: -1, owner: "reader", verb: locktest.RETR, name: name})
		content, err := s.retrieve(fileOf(name))
		if err != nil {
			h.c.t.Fatal(err)
		}
		if o.value, err = strconv.Atoi(string(content[:19])); err != nil {
			h.c.t.Fatal(err)
		}
		h.end(o, locktest.Done)
	}
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

// operations makes of what was told what porcupine checks. An operation of which nobody knows what became is over when the
// next server listens: nothing that was sent to an earlier one may have an effect after that.
func (h *history) operations() (all []porcupine.Operation) {
	last := make(map[string]*op) // of each connection: the last operation that had a reply
	lost := make(map[string]*op) // and an RMD that had none
	for _, o := range h.ops {
		switch {
		case o.nothing:
		case o.result != "":
			last[o.owner] = o
		case o.verb == locktest.RMD:
			lost[o.owner] = o
		}
	}
	terms := h.c.terms()
	until := func(o *op) int64 {
		until := int64(math.MaxInt64)
		for _, r := range terms {
			if o.run != nil && o.run.epoch != 0 && r.epoch > o.run.epoch {
				until = min(until, r.listens)
			}
		}
		return until
	}
	for _, o := range h.ops {
		in := locktest.Deed{Verb: o.verb, Name: lock.Name(o.name), Owner: o.owner, Value: o.value, Call: o.call, Return: o.ret}
		out := locktest.Answer{Result: o.result, Token: o.token}
		switch {
		case o.nothing:
			continue
		case o.result == "" && (o.verb == locktest.RETR || o.verb == locktest.RMD):
			continue // nobody sees anything of it, but for the end of a hold, of which MayEnd tells
		case o.result == "":
			out.Result = locktest.Unknown
			if in.Return = until(o); in.Return <= in.Call {
				continue
			}
		}
		switch o.verb {
		case locktest.RETR:
			in.Value, out.Value = 0, o.value
		case locktest.MKD:
			in.MayEnd, in.MustEnd = math.MaxInt64, math.MaxInt64
			if l := lost[o.owner]; l != nil && l.name == o.name {
				in.MayEnd = min(in.MayEnd, l.call)
			}
			switch l := last[o.owner]; {
			case o.result == "", l == o: // a grant that could not be delivered is undone
				in.MayEnd = in.Call
			case releasedAtEnd[o.name]:
				in.MayEnd = min(in.MayEnd, l.call)
			}
		}
		all = append(all, porcupine.Operation{ClientId: o.client, Input: in, Call: in.Call, Output: out, Return: in.Return})
	}
	return all
}

// counts are how many operations ended how.
func (h *history) counts() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	counts := make(map[string]int)
	for _, o := range h.ops {
		switch {
		case o.nothing:
			counts[fmt.Sprint(o.verb, " nothing")]++
		case o.result == "":
			counts[fmt.Sprint(o.verb, " unknown")]++
		default:
			counts[fmt.Sprint(o.verb, " ", o.result)]++
		}
	}
	return counts
}

// wrong says what is wrong with all that happened, after finish; "": nothing. It ends the servers.
func (h *history) wrong() string {
	h.c.t.Helper()
	return strings.Join(slices.DeleteFunc(append(h.failures, locktest.Wrong(h.operations()), h.wrongInEtcd()),
		func(text string) bool { return text == "" }), "\n")
}
