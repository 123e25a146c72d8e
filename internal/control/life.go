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
	if cmd, _ := c.state(); cmd.hasLeft() { // Read may wait for the transfer already
		cmd.interrupt(Stopped)
		c.closePort()
	}
}

// shutdown is Kick that lets a transfer finish.
func (c *Conn) shutdown(r Reply) { c.give(order{why: ReasonShutdown, reply: r, drains: true}) }

// give has Read end the connection. The first order counts, but for one that waits for a transfer.
func (c *Conn) give(o order) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.order == nil || c.order.drains {
		c.order = &o
	}
	c.wakeLocked()
}

// state returns the command under way and how the connection is to be ended; nil: none, not yet.
func (c *Conn) state() (*Command, *order) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current, c.order
}

// conclude ends the connection, once: it ends the transfer, if there is one, and tells everybody.
func (c *Conn) conclude(o order) {
	c.mu.Lock()
	if c.phase == ended {
		c.mu.Unlock()
		return
	}
	c.phase = ended
	cmd, unheard := c.current, c.unheard
	c.unheard = nil
	c.mu.Unlock()
	c.wire.end()
	if leaves := cmd.hasLeft() && (o.why == ReasonEOF || o.why == ReasonReset); !leaves {
		if cmd.Transfers() {
			cmd.interrupt(interruptionBy(o.why))
		}
		c.closePort() // the transfer knows why
	}
	if cmd.Transfers() {
		<-cmd.done
		c.closePort()
	}
	if o.reply.Code != 0 {
		c.undoLost(unheard) // before the goodbye, which a client that has closed answers with a reset
		unheard = nil
		c.answer(o.reply)
	}
	c.handler.Ended(o.why)
	c.undoLost(unheard) // it may take a moment, and the client's next connection finds the session ended
}

func interruptionBy(why Reason) Interruption {
	if why == ReasonShutdown || why == ReasonKicked || why == ReasonIdle {
		return Stopped
	}
	return Ended
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
	return c.transport().Close() // with TLS its close_notify, then wire.Close
}

// Gone reports whether the client has hung up: FIN or RST came, also if there is unread data before it, or the
// connection has ended, or is to end, for another reason: what runs long gives up then. It is also true for a client that sent QUIT and did not wait for
// the reply, but not during a transfer that QUIT came behind before its 1xx: RFC 959 section 4.1.1 has that go on.
func (c *Conn) Gone() bool {
	c.mu.Lock()
	if c.current != nil && c.current.left {
		c.mu.Unlock()
		return false
	}
	over := c.phase == ended || c.order != nil && !(c.order.drains && c.current.Transfers())
	c.mu.Unlock()
	return over || c.wire.hungUp()
}

// CatchUp waits until Read has looked at what has arrived, so that the command under way was told of an ABOR or QUIT among
// it; d at most. It is for transfers, while which Read reads ahead.
func (c *Conn) CatchUp(d time.Duration) {
	received := c.wire.received()
	for until := time.Now().Add(d); c.looked.Load() < received && time.Now().Before(until); {
		time.Sleep(100 * time.Microsecond)
	}
}

// fill waits for input, or for something else to happen. How the connection is to be ended then is an order.
func (c *Conn) fill() {
	space := c.in.space()
	if len(space) == 0 {
		c.give(order{why: ReasonClosed, reply: Reply{Code: 421, Text: "too many commands behind a transfer"}})
		return
	}
	stream := c.transport()
	c.arm(c.idleAt(time.Now()))
	c.looked.Store(c.wire.got.Load())
	n, err := stream.Read(space)
	if n > 0 {
		line := c.in.added(n)
		c.mu.Lock()
		c.shaking = false
		if line {
			c.unheard = nil // the replies before it were delivered
		}
		c.mu.Unlock()
		return // an error will come again
	}
	if errors.Is(err, os.ErrDeadlineExceeded) && !c.handshakes() { // a handshake that was interrupted cannot go on
		c.timeOut()
		return
	}
	c.give(order{why: c.broken(err)})
}

// broken says what a failed read or write means.
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
func (c *Conn) Wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.shaking {
		c.wakeLocked()
	}
}

// wakeLocked wakes a Read that waits for the socket by a deadline in the past: no goroutine stands by for that.
func (c *Conn) wakeLocked() {
	c.woken = true
	c.wire.wakeReader()
}

// arm sets when the idle time ends, unless Read is to look around.
func (c *Conn) arm(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.woken {
		_ = c.wire.SetReadDeadline(at)
	}
}

// idleAt is when the client will have been idle for too long, or has taken too long to log in; the zero Time: never. While a
// command is under way it is not idle.
func (c *Conn) idleAt(now time.Time) time.Time {
	limits := c.server.limits()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.phase == greeted && limits.LoginTimeout > 0: // whatever it says
		return c.since.Add(limits.LoginTimeout)
	case limits.IdleTimeout <= 0:
		return time.Time{}
	case c.current != nil:
		return now.Add(limits.IdleTimeout)
	}
	if at := c.lastActive.Add(limits.IdleTimeout); at.After(c.spared) {
		return at
	}
	return c.spared
}

// timeOut is for when the read deadline has come: Read was woken, or the client may be idle.
func (c *Conn) timeOut() {
	c.mu.Lock()
	woken, phase := c.woken, c.phase
	c.woken = false
	c.mu.Unlock()
	now := time.Now()
	if at := c.idleAt(now); woken || at.IsZero() || now.Before(at) {
		return
	}
	text := "idle timeout"
	if _, limited := c.LoginDeadline(); limited && phase == greeted {
		text = "the login took too long"
	} else if more := c.handler.IdleFor(); more > 0 {
		c.mu.Lock()
		c.spared = now.Add(more)
		c.mu.Unlock()
		return
	}
	c.give(order{why: ReasonIdle, reply: Reply{Code: 421, Text: text}})
}

// touch takes note of a sign of life.
func (c *Conn) touch() {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastActive = now
}
