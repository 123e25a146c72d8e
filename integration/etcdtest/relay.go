//go:build linux

package etcdtest

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Relay connects clients to a server, and delays or drops their data. It is for use by several goroutines.
type Relay struct {
	target   string
	listener net.Listener
	running  sync.WaitGroup

	mu      sync.Mutex
	mode    mode
	delay   time.Duration
	late    time.Time     // see HealLate
	changed chan struct{} // closed at the next change of these
	pairs   map[*pair]struct{}
	closed  bool
}

// mode is what a relay does with data.
type mode int

const (
	passing     mode = iota
	cut              // it drops all data, and ends the connections afterwards
	holding          // it keeps all data until later
	holdReplies      // it keeps the data of the server until later
)

// pair is a connection of a client and the one to the server.
type pair struct {
	client, server net.Conn
	once           sync.Once
	ended          chan struct{}
	late           bool // it drops data that came after Relay.late
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

// NewRelay starts a relay to a host:port. It ends with the test.
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

// Relays starts a relay to each member.
func (c *Cluster) Relays() []*Relay {
	c.t.Helper()
	var all []*Relay
	for _, endpoint := range c.Endpoints() {
		all = append(all, NewRelay(c.t, endpoint))
	}
	return all
}

// Endpoint returns the address of the relay, as host:port.
func (r *Relay) Endpoint() string { return r.listener.Addr().String() }

// Cut drops all data. Connections stay open, and new ones get no answer, until Heal ends them.
func (r *Relay) Cut() { r.set(cut, 0) }

// Delay delays all data, in both directions.
func (r *Relay) Delay(d time.Duration) { r.set(passing, d) }

// HoldBack keeps all data until Heal, and delivers it then.
func (r *Relay) HoldBack() { r.set(holding, 0) }

// HoldReplies keeps the data of the server until Heal. The server receives everything at once.
func (r *Relay) HoldReplies() { r.set(holdReplies, 0) }

// Heal delivers all data at once.
func (r *Relay) Heal() { r.set(passing, 0) }

// HealLate is Heal for new connections. The present ones deliver data that came before a time, and nothing more: a request that the client gave
// up arrives, but its cancellation does not. Heal ends them.
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

// carry serves one connection until its end.
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

// joined sets the connection to the server, unless the client's has ended.
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

// piece is the data of one read.
type piece struct {
	data []byte
	at   time.Time
}

// pump delivers the pieces of one side in order, each at its time, and then the end.
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
	defer p.end() // ends the goroutine that reads
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

// reach waits until the relay connects to the server; false: the connection has ended. Only Cut prevents it.
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

// pass waits until a piece that came at a time may be delivered; false: the connection has ended.
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
