package control

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// Reason says why a connection ended, in a few words for logs.
type Reason string

// The reasons.
const (
	ReasonClosed   Reason = "closed by the server"
	ReasonQuit     Reason = "quit"
	ReasonEOF      Reason = "closed by the client"
	ReasonReset    Reason = "reset" // or given up by TCP
	ReasonIdle     Reason = "idle for too long"
	ReasonSlow     Reason = "did not read its replies"
	ReasonTLS      Reason = "tls handshake failed"
	ReasonKicked   Reason = "kicked"
	ReasonShutdown Reason = "server stops"
)

// order is how a connection is to be ended.
type order struct {
	why    Reason
	reply  Reply // the last word; the zero Reply: none
	drains bool  // when the transfer under way is over
}

// Kick ends the connection: a command that waits is withdrawn, a transfer aborted, the reply (421) is written if that
// is possible, and the connection is closed. It does not wait for that. A command that the library executes at the
// moment is finished first.
func (c *Conn) Kick(r Reply) {
	c.wire.end()
	c.give(order{why: ReasonKicked, reply: r})
	if cmd := c.current.Load(); cmd.hasLeft() { // Read may wait for the transfer already
		cmd.Abort(ErrStopped)
	}
}

// shutdown is Kick that lets a transfer finish.
func (c *Conn) shutdown(r Reply) { c.give(order{why: ReasonShutdown, reply: r, drains: true}) }

// give has Read end the connection. The first order counts, but for one that waits for a transfer.
func (c *Conn) give(o order) {
	if !c.order.CompareAndSwap(nil, &o) {
		if before := c.order.Load(); before.drains {
			c.order.CompareAndSwap(before, &o)
		}
	}
	c.wake(true)
}

// conclude ends the connection, once: it ends the transfer, if there is one, and tells everybody.
func (c *Conn) conclude(o order) {
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		return
	}
	c.ended = true
	c.mu.Unlock()
	c.wire.end()
	if cmd := c.current.Load(); cmd.Transfers() {
		switch leaves := cmd.hasLeft(); {
		case o.why == ReasonShutdown, o.why == ReasonKicked, o.why == ReasonIdle:
			cmd.Abort(ErrStopped)
		case !leaves || o.why != ReasonEOF && o.why != ReasonReset:
			cmd.Abort(ErrHungUp)
		}
		<-cmd.done
	}
	c.unprepare()
	c.mu.Lock()
	unheard := c.unheard
	c.unheard = nil
	c.mu.Unlock()
	if o.reply.Code != 0 {
		c.undoLost(unheard) // before the goodbye, which a client that has closed answers with a reset
		unheard = nil
		c.answer(o.reply)
	}
	c.handler.Ended(o.why)
	c.undoLost(unheard) // it may take a moment, and the client's next connection finds the session ended
}

// Close closes the connection. The library calls it at the end of each.
func (c *Conn) Close() error {
	why := ReasonClosed
	if c.Command().Is("QUIT") {
		why = ReasonQuit
	}
	c.conclude(order{why: why})
	if !c.server.dismiss(c) {
		return nil // closed before
	}
	return c.stream.Close() // with TLS its close_notify, then wire.Close
}

// Gone reports whether the client has hung up: FIN or RST came, also if there is unread data before it, or the
// connection has ended, or is to end, for another reason: what runs long gives up then. It is also true for a client that sent QUIT and did not wait for
// the reply, but not during a transfer that QUIT came behind before its 1xx: RFC 959 section 4.1.1 has that go on.
func (c *Conn) Gone() bool {
	cmd := c.current.Load()
	if cmd.hasLeft() {
		return false
	}
	c.mu.Lock()
	over := c.ended
	c.mu.Unlock()
	if o := c.order.Load(); o != nil && !(o.drains && cmd.Transfers()) {
		over = true
	}
	return over || c.wire.hungUp()
}

// fill waits for input, or for something else to happen. How the connection is to be ended then is an order.
func (c *Conn) fill() {
	space := c.in.space()
	if len(space) == 0 {
		c.give(order{why: ReasonClosed, reply: Reply{Code: 421, Text: "too many commands behind a transfer"}})
		return
	}
	c.arm()
	c.looked.Store(c.wire.got.Load())
	n, err := c.stream.Read(space)
	if n > 0 {
		c.shaking.Store(false)
		if c.in.added(n) { // a line: the replies before it were delivered
			c.mu.Lock()
			c.unheard = nil
			c.mu.Unlock()
		}
		return // an error will come again
	}
	if errors.Is(err, os.ErrDeadlineExceeded) && !c.handshakes() { // a handshake that was interrupted cannot go on
		c.timeOut()
		return
	}
	c.give(order{why: c.broken(err)})
}

// broken returns what a failed read or write means.
func (c *Conn) broken(err error) Reason {
	var errno syscall.Errno
	switch {
	case c.handshakes():
		return ReasonTLS
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ReasonSlow
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return ReasonEOF
	case errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe):
		return ReasonClosed
	case c.isTLS() && !errors.As(err, &errno):
		return ReasonTLS
	}
	return ReasonReset
}

// Wake makes a command that waits poll, and Read look around. It may be called at any time, also when nothing waits,
// with other locks held: it calls nobody and does not block. A TLS handshake cannot be interrupted and go on, and no command
// waits during one: then Wake does nothing.
func (c *Conn) Wake() { c.wake(false) }

// wake wakes a Read that waits for the socket by a deadline in the past: no goroutine stands by for that.
func (c *Conn) wake(always bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if always || !c.shaking.Load() {
		c.woken = true
		c.wire.wakeReader()
	}
}

// arm sets when the idle time ends, unless Read is to look around. A deadline that is set and too early stays: when it has come, timeOut
// finds that the time is not over. So a busy connection costs no deadline for each command.
func (c *Conn) arm() {
	at := c.idleAt()
	if !c.armed.IsZero() && !at.Before(c.armed) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.woken {
		return
	}
	c.armed = at
	if at == never {
		at = time.Time{}
	}
	_ = c.wire.SetReadDeadline(at)
}

// never is later than any deadline.
var never = time.Unix(1<<40, 0)

// idleAt is when the client will have been idle for too long, or has taken too long to log in. While a
// command is under way it is not idle.
func (c *Conn) idleAt() time.Time {
	limits := c.server.limits.Load()
	switch {
	case c.phase == greeted && limits.LoginTimeout > 0: // whatever it says
		return c.since.Add(limits.LoginTimeout)
	case limits.IdleTimeout <= 0:
		return never
	case c.current.Load() != nil:
		return time.Now().Add(limits.IdleTimeout)
	}
	if at := c.wire.lastReply().Add(limits.IdleTimeout); at.After(c.spared) {
		return at
	}
	return c.spared
}

// timeOut is for when the read deadline has come: Read was woken, or the client may be idle.
func (c *Conn) timeOut() {
	c.mu.Lock()
	woken := c.woken
	c.woken, c.armed = false, time.Time{}
	c.mu.Unlock()
	now := time.Now()
	if at := c.idleAt(); woken || now.Before(at) {
		return
	}
	text := "idle timeout"
	if _, limited := c.LoginDeadline(); limited && c.phase == greeted {
		text = "the login took too long"
	} else if more := c.handler.IdleFor(); more > 0 {
		c.spared = now.Add(more)
		return
	}
	c.give(order{why: ReasonIdle, reply: Reply{Code: 421, Text: text}})
}
