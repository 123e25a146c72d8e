//go:build linux

package etcdtest

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Relay passes on what a client and a server say, or not. Its methods are for any goroutine.
type Relay struct {
	target   string
	listener net.Listener
	running  sync.WaitGroup

	mu      sync.Mutex
	mode    mode
	delay   time.Duration
	late    time.Time     // see HealLate
	changed chan struct{} // closed when one of these changes
	pairs   map[*pair]struct{}
	closed  bool
}

// mode is what a relay does with what comes.
type mode int

const (
	passing     mode = iota
	cut              // nothing goes through, and connections that had it so end when it is over
	holding          // nothing goes through, and all of it does when it is over
	holdReplies      // the same, of what the server says
)

// pair is a connection's two halves.
type pair struct {
	client, server net.Conn
	once           sync.Once
	ended          chan struct{}
	late           bool // of what came after Relay.late nothing goes through
}

func (p *pair) end() {
	p.once.Do(func() {
		close(p.ended)
		p.client.Close()
		if p.server != nil {
			p.server.Close()
		}
	})
}

// NewRelay starts a relay before a host:port. It ends with the test.
func NewRelay(t testing.TB, target string) *Relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &Relay{target: target, listener: l, changed: make(chan struct{}), pairs: make(map[*pair]struct{})}
	r.running.Go(r.accept)
	t.Cleanup(r.close)
	return r
}

// Relays starts one before each member.
func (c *Cluster) Relays() []*Relay {
	c.t.Helper()
	var all []*Relay
	for _, endpoint := range c.Endpoints() {
		all = append(all, NewRelay(c.t, endpoint))
	}
	return all
}

// Endpoint is where clients reach the relay, as host:port.
func (r *Relay) Endpoint() string { return r.listener.Addr().String() }

// Cut has nothing go through: connections stay and are silent, new ones get no answer. What is sent meanwhile is lost:
// with Heal these connections end.
func (r *Relay) Cut() { r.set(cut, 0) }

// Delay has everything come so much later.
func (r *Relay) Delay(d time.Duration) { r.set(passing, d) }

// HoldBack has nothing go through until Heal, and then all of it, late.
func (r *Relay) HoldBack() { r.set(holding, 0) }

// HoldReplies is HoldBack for what the server says: it hears everything at once.
func (r *Relay) HoldReplies() { r.set(holdReplies, 0) }

// Heal has everything go through.
func (r *Relay) Heal() { r.set(passing, 0) }

// HealLate is Heal for new connections. Those that there are pass on what came until then and nothing more: what a client has given up
// arrives, and that it was given up does not. With Heal they end.
func (r *Relay) HealLate(until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.late = until
	for p := range r.pairs {
		p.late = true
	}
	r.goOnLocked(passing, 0)
}

func (r *Relay) set(to mode, delay time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := range r.pairs {
		if r.mode == cut && to != cut || p.late {
			p.end()
		}
	}
	r.goOnLocked(to, delay)
}

func (r *Relay) goOnLocked(to mode, delay time.Duration) {
	r.mode, r.delay = to, delay
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *Relay) accept() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.running.Go(func() { r.carry(&pair{client: client, ended: make(chan struct{})}) })
	}
}

// carry passes on one connection until it has ended.
func (r *Relay) carry(p *pair) {
	defer p.end()
	if !r.add(p) {
		return
	}
	defer r.remove(p)
	if !r.reach(p) {
		return
	}
	server, err := net.DialTimeout("tcp", r.target, 10*time.Second)
	if err != nil {
		return
	}
	if !r.joined(p, server) {
		server.Close()
		return
	}
	var both sync.WaitGroup
	both.Go(func() { r.pump(p, p.client, server, false) })
	both.Go(func() { r.pump(p, server, p.client, true) })
	both.Wait()
}

func (r *Relay) add(p *pair) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pairs[p] = struct{}{}
	return !r.closed
}

func (r *Relay) remove(p *pair) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pairs, p)
}

// joined notes the other half of a connection, unless it has ended.
func (r *Relay) joined(p *pair, server net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-p.ended:
		return false
	default:
		p.server = server
		return true
	}
}

// piece is what was read at once.
type piece struct {
	data []byte
	at   time.Time
}

// pump passes on what one side sends, in order and each piece when it may, and then its end.
func (r *Relay) pump(p *pair, from, to net.Conn, reply bool) {
	defer p.end()
	pieces := make(chan piece, 1024)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(pieces)
		for {
			buffer := make([]byte, 16<<10)
			n, err := from.Read(buffer)
			if n > 0 {
				select {
				case pieces <- piece{buffer[:n], time.Now()}:
				case <-p.ended:
					return
				}
			}
			if err != nil {
				return
			}
		}
	})
	defer reading.Wait()
	defer p.end() // what reads is waited for
	for next := range pieces {
		if !r.pass(p, reply, next.at) {
			return
		}
		if _, err := to.Write(next.data); err != nil {
			return
		}
	}
	r.pass(p, reply, time.Now())
}

// reach returns when the server can be reached; false: the connection has ended. Connections are made while what they say is held back.
func (r *Relay) reach(p *pair) bool {
	for {
		r.mu.Lock()
		reached, changed := r.mode != cut, r.changed
		r.mu.Unlock()
		if reached {
			return true
		}
		select {
		case <-changed:
		case <-p.ended:
			return false
		}
	}
}

// pass returns when a piece that came at a time may go through; false: the connection has ended.
func (r *Relay) pass(p *pair, reply bool, at time.Time) bool {
	for {
		r.mu.Lock()
		held := r.mode == cut || r.mode == holding || r.mode == holdReplies && reply || p.late && at.After(r.late)
		left, changed := time.Until(at.Add(r.delay)), r.changed
		r.mu.Unlock()
		var due <-chan time.Time
		switch {
		case held:
		case left <= 0:
			return true
		default:
			due = time.After(left)
		}
		select {
		case <-due:
		case <-changed:
		case <-p.ended:
			return false
		}
	}
}

func (r *Relay) close() {
	r.listener.Close()
	r.mu.Lock()
	r.closed = true
	for p := range r.pairs {
		p.end()
	}
	r.mu.Unlock()
	r.running.Wait()
}
