package control

import (
	"crypto/tls"
	"net"
	"sync"
	"syscall"
	"time"
)

// Conn is one control connection, as ftpserverlib sees it: Read gives it whole lines,
// Write takes whole lines. Read is for one goroutine, the library's; everything else is
// safe to use from any goroutine.
//
// The fields above mu belong to the goroutine in Read, or never change.
type Conn struct {
	id      uint64
	opts    *Options
	handler Handler
	urgent  Urgenter // the handler, if it is one
	idler   Idler    // the handler, if it is one
	wire    *wire
	addr    net.Addr    // an Addr
	leave   func(*Conn) // called once, when closed
	over    chan struct{}
	started chan struct{} // closed when the handler is in its place

	in       input
	rest     []byte // what Read still has to hand out
	restBuf  []byte // the memory of rest
	reply    []byte // the memory of answers
	head     Command
	headAt   int64 // where in the stream head began
	haveHead bool
	fault    Reply // if haveHead: what is wrong with the line; code 0: nothing
	waiter   Waiter
	overtook int64 // where in the stream the ABOR is that overtook others; -1: none
	ending   bool  // EOF was seen behind a QUIT: nothing is read any more
	deadline time.Time
	idleTime time.Duration // idleLimit, as Read knows it

	end1 sync.Once // around Handler.Ended

	mu         sync.Mutex
	stream     net.Conn // wire, or a *tls.Conn over it
	shaken     bool     // the implicit handshake is done, or none is needed
	inRead     bool     // the library is in Read, or in a handshake
	parked     bool     // Read waits for the socket
	woken      bool     // while parked: the read deadline was set to the past
	attention  bool     // Read is to look around before it parks
	watch      bool     // Read wants attention when the transfer is over
	looked     uint64   // how much of what was read Read had looked at when it last began to wait
	order      order    // how the connection is to be ended
	quit       bool     // QUIT was passed on
	closed     bool
	ended      bool
	listens    bool // it has ended since the client said that it sends nothing more: with a FIN, behind which it may wait for a reply
	hangup     bool // the end of the connection was seen
	transfer   transfer
	works      sync.WaitGroup // what runs, see Run
	lastActive time.Time
	idleLimit  time.Duration
	undeliv    []func() // Undelivered of the replies since the last line came
	abrupt     bool     // closed in the middle of Read
	unheard    bool     // if abrupt: they were not acknowledged then
}

// order is how the connection is to be ended, for Read to find. A higher rank replaces a
// lower one; rank 0 is no order.
type order struct {
	rank   int
	why    Reason
	reply  Reply
	silent bool // no reply
}

func newConn(nc net.Conn, id uint64, opts *Options, implicit *tls.Config, leave func(*Conn)) *Conn {
	c := &Conn{
		id:       id,
		opts:     opts,
		wire:     newWire(nc, opts.WriteTimeout),
		leave:    leave,
		over:     make(chan struct{}),
		started:  make(chan struct{}),
		in:       input{limit: opts.MaxLine},
		overtook: -1,
		shaken:   implicit == nil,

		idleTime:  opts.IdleTimeout,
		idleLimit: opts.IdleTimeout,
	}
	c.addr = Addr{Addr: nc.RemoteAddr(), Conn: c}
	c.stream = c.wire
	if implicit != nil {
		c.stream = tls.Server(c.wire, implicit)
	}
	return c
}

// start gives the connection its handler and starts the idle clock.
func (c *Conn) start(h Handler) {
	c.urgent, _ = h.(Urgenter)
	c.idler, _ = h.(Idler)
	c.mu.Lock()
	c.handler = h // Conns may have shown us to others already
	c.lastActive = time.Now()
	c.mu.Unlock()
	c.armIdle(time.Now().Add(c.idleTime))
	close(c.started)
}

// setIdleTimeout changes the idle timeout of the connection.
func (c *Conn) setIdleTimeout(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idleLimit != d {
		c.idleLimit = d
		c.wakeLocked()
	}
}

// ID tells the connection from the others of its Listener. The first one has 1.
func (c *Conn) ID() uint64 { return c.id }

// Handler returns the handler of the connection; nil while NewHandler runs.
func (c *Conn) Handler() Handler {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.handler
}

// TLS returns the state of the TLS connection, or nil if there is none.
func (c *Conn) TLS() *tls.ConnectionState {
	c.mu.Lock()
	stream := c.stream
	c.mu.Unlock()
	t, ok := stream.(*tls.Conn)
	if !ok {
		return nil
	}
	state := t.ConnectionState()
	return &state
}

// Addr is the client's address. Its String is the plain address, which the library
// parses; it leads from the library's ClientContext back to the connection.
type Addr struct {
	net.Addr
	Conn *Conn
}

// FromAddr returns the connection that an address returned by RemoteAddr belongs to.
func FromAddr(a net.Addr) (*Conn, bool) {
	addr, ok := a.(Addr)
	return addr.Conn, ok
}

// RemoteAddr returns the client's address, an [Addr].
func (c *Conn) RemoteAddr() net.Addr { return c.addr }

// LocalAddr returns the server's address.
func (c *Conn) LocalAddr() net.Addr { return c.wire.LocalAddr() }

// SetDeadline does nothing: a deadline for both directions would lose replies whose
// effect stands. Idle time is the business of Options.IdleTimeout.
func (c *Conn) SetDeadline(time.Time) error { return nil }

// SetReadDeadline does nothing, see SetDeadline.
func (c *Conn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing, see SetDeadline.
func (c *Conn) SetWriteDeadline(time.Time) error { return nil }

// SyscallConn gives access to the socket; an error if it is none.
func (c *Conn) SyscallConn() (syscall.RawConn, error) {
	if c.wire.raw == nil {
		return nil, syscall.ENOTSUP
	}
	return c.wire.raw, nil
}

// Wake makes Read poll its Waiter. It may be called at any time, also when nothing waits,
// with other locks held: it calls nobody and does not block.
func (c *Conn) Wake() {
	c.mu.Lock()
	c.wakeLocked()
	c.mu.Unlock()
}

// wakeLocked makes Read look around, now or as soon as it would wait. A Read that waits
// for the socket is woken by a deadline in the past: no goroutine stands by for that.
func (c *Conn) wakeLocked() {
	c.attention = true
	if c.parked && !c.woken {
		c.woken = true
		c.wire.wakeReader()
	}
}

// Kick ends the connection: a waiting command is withdrawn, the reply (421) is written if
// that is possible, and the client is hung up on, also while a transfer runs. It does not wait for
// that. A command that the library executes at the moment is finished first, and a reply
// that the client does not read has its Options.WriteTimeout.
func (c *Conn) Kick(r Reply) { c.give(order{rank: 2, why: ReasonKicked, reply: r}) }

// shutdown is Kick that lets a transfer finish.
func (c *Conn) shutdown(r Reply) { c.give(order{rank: 1, why: ReasonShutdown, reply: r}) }

func (c *Conn) give(o order) {
	c.mu.Lock()
	if o.rank > c.order.rank {
		c.order = o
	}
	c.wakeLocked()
	c.mu.Unlock()
}

// Gone reports whether the client has hung up: FIN or RST came, also if there is unread
// data before it, or the connection has ended for another reason. It is also true for a
// client that sent QUIT and did not wait for the reply.
func (c *Conn) Gone() bool {
	select {
	case <-c.over:
		return true
	default:
	}
	return c.wire.hungUp(hangAny)
}

// GoneWithin reports whether the client hangs up within d, or has. At the end of an
// upload it tells a killed uploader, whose connections end microseconds apart, from a
// client that waits for its reply.
func (c *Conn) GoneWithin(d time.Duration) bool {
	if c.Gone() {
		return true
	}
	// Read sees a hang-up at once, but nobody does while the library is busy elsewhere.
	const look = 5 * time.Millisecond
	timer := time.NewTimer(min(d, look))
	defer timer.Stop()
	for until := time.Now().Add(d); ; {
		select {
		case <-c.over:
			return true
		case <-timer.C:
			left := time.Until(until)
			if gone := c.Gone(); gone || left <= 0 {
				return gone
			}
			timer.Reset(min(left, look))
		}
	}
}

// Behind reports whether the client has sent more behind the command that is being executed. It is for Handler.Command.
func (c *Conn) Behind() bool { return c.in.r != c.in.w || c.wire.unread() }

// CatchUp waits until Read has looked at everything that has arrived by now, so that the Handler was told of an ABOR among it; d at
// most. It is for what Run runs. Where the system cannot tell what has arrived it does not wait.
func (c *Conn) CatchUp(d time.Duration) {
	received, ok := c.wire.received()
	for until := time.Now().Add(d); ok && c.lookedAt() < received && time.Now().Before(until); {
		time.Sleep(100 * time.Microsecond)
	}
}

func (c *Conn) lookedAt() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.looked
}

// Unacked reports whether the client's TCP has not acknowledged all that was written
// (SIOCOUTQ). False where the system cannot tell.
func (c *Conn) Unacked() bool { return c.wire.unacked() }

// Close closes the connection. The library calls it at the end of each; the driver may
// do so at any time, but Kick is gentler: after a Close the client is told nothing, and a
// reply that its TCP has not acknowledged yet counts as undelivered. After the first time
// Close does nothing.
func (c *Conn) Close() error {
	<-c.started // a Handler may hand its Conn on before Accept has returned
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	c.unheard = len(c.undeliv) > 0 && (c.wire.unacked() || c.wire.hungUp(hangReset))
	c.abrupt = c.inRead
	c.wakeLocked()
	reading, ended, quit, stream := c.inRead, c.ended, c.quit, c.stream
	c.mu.Unlock()

	if reading { // Read sees it and does the rest
		return c.wire.Close()
	}
	if !ended {
		why := ReasonClosed
		if quit {
			why = ReasonQuit
		}
		c.end(why)
	}
	c.works.Wait() // the handler was told of the end, which ends what runs
	c.leave(c)
	c.wire.finish()
	return stream.Close() // with TLS its close_notify, then wire.Close
}

// end tells everybody that the connection is over, once.
func (c *Conn) end(why Reason) {
	c.end1.Do(func() {
		c.mu.Lock()
		c.ended, c.listens = true, why == ReasonEOF
		c.mu.Unlock()
		c.sawEnd()
		c.settle(why)
		c.handler.Ended(c, why)
	})
}

// sawEnd ends the waiting of GoneWithin.
func (c *Conn) sawEnd() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.hangup {
		c.hangup = true
		close(c.over)
	}
}

// settle calls Undelivered of the replies that the client cannot have got.
func (c *Conn) settle(why Reason) {
	c.mu.Lock()
	calls := c.undeliv
	c.undeliv = nil
	abrupt, unheard := c.abrupt, c.unheard
	c.mu.Unlock()
	switch {
	case len(calls) == 0:
		return
	case why == ReasonReset || why == ReasonSlow:
	case abrupt: // the socket is closed and cannot be asked any more
		if !unheard {
			return
		}
	case c.acknowledged():
		return
	}
	for _, undelivered := range calls {
		undelivered()
	}
}

// acknowledged waits up to AckTimeout until the client's TCP has acknowledged all. A
// client that half-closed before its reply was written needs a moment: its
// acknowledgement may be delayed (RFC 1122 section 4.2.3.2), and nothing tells of its arrival.
func (c *Conn) acknowledged() bool {
	for until := time.Now().Add(c.opts.AckTimeout); ; time.Sleep(5 * time.Millisecond) {
		switch {
		case !c.wire.unacked():
			return true
		case c.wire.hungUp(hangReset) || time.Now().After(until): // a reset leaves it as it is
			return false
		}
	}
}
