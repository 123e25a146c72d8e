package control

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// Reason is why a connection ended, in a few words for the log.
type Reason string

// The reasons.
const (
	ReasonClosed   Reason = "closed by the server"
	ReasonQuit     Reason = "quit"
	ReasonEOF      Reason = "closed by the client"
	ReasonReset    Reason = "reset" // or TCP has given it up
	ReasonIdle     Reason = "idle for too long"
	ReasonSlow     Reason = "did not read its replies"
	ReasonTLS      Reason = "tls handshake failed"
	ReasonKicked   Reason = "kicked"
	ReasonShutdown Reason = "server stops"
)

// order is a request to end a connection.
type order struct {
	why    Reason
	reply  Reply // sent last; the zero Reply: none
	drains bool  // wait for the transfer under way
}

// Kick makes Read end the connection, and does not wait for that. Read withdraws a command that waits, aborts a transfer, writes the
// reply (421) if it can, and ends. A command that the library is executing is finished first.
func (c *Conn) Kick(r Reply) {
	c.wire.end()
	c.give(order{why: ReasonKicked, reply: r})
	if cmd := c.current.Load(); cmd.hasLeft() { // Read may already wait for the transfer
		cmd.Abort(ErrStopped)
	}
}

// shutdown is like Kick, but lets a transfer finish.
func (c *Conn) shutdown(r Reply) { c.give(order{why: ReasonShutdown, reply: r, drains: true}) }

// give orders Read to end the connection. The first order counts, unless it drains.
func (c *Conn) give(o order) {
	if !c.order.CompareAndSwap(nil, &o) {
		if before := c.order.Load(); before.drains {
			c.order.CompareAndSwap(before, &o)
		}
	}
	c.wake(true)
}

// conclude ends the session: it ends the transfer, if there is one, undoes lost grants, and calls Handler.Ended.
func (c *Conn) conclude(o order) {
	c.give(o) // from now on Gone returns true
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
		c.undoLost(unheard) // before the last reply, which a client that has closed answers with a reset
		unheard = nil
		c.answer(o.reply)
	}
	c.handler.Ended(o.why)
	c.undoLost(unheard) // this may take a moment; the client's next connection finds the session ended
}

// Close closes the connection. The library calls it after Read has returned io.EOF.
func (c *Conn) Close() error {
	why := ReasonClosed
	if c.Command().Is("QUIT") {
		why = ReasonQuit
	}
	c.concluded.Do(func() { c.conclude(order{why: why}) })
	if !c.server.dismiss(c) {
		return nil // closed before
	}
	return c.stream.Close() // with TLS its close_notify, then wire.Close
}

// Gone reports whether the client has hung up (FIN or RST has arrived, perhaps after unread data), or the connection has ended or is
// about to end for another reason. During a transfer whose QUIT came before the 1xx it is false: RFC 959 section 4.1.1 requires the
// transfer to continue.
func (c *Conn) Gone() bool {
	cmd := c.current.Load()
	if cmd.hasLeft() {
		return false
	}
	if o := c.order.Load(); o != nil && !(o.drains && cmd.Transfers()) {
		return true
	}
	return c.wire.hungUp()
}

// fill waits for input or for a Wake. If the connection must end, fill gives the order.
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
		if c.in.added(n) { // a line: the client has received the replies before it
			c.mu.Lock()
			c.unheard = nil
			c.mu.Unlock()
		}
		return // an error comes again
	}
	if errors.Is(err, os.ErrDeadlineExceeded) && !c.handshakes() { // a handshake that was interrupted cannot go on
		c.timeOut()
		return
	}
	c.give(order{why: c.broken(err)})
}

// broken returns the reason that an error of Read or Write stands for.
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

// Wake makes a command that waits poll again, and Read check for orders and new limits. It does not block and calls nothing, so it may
// be called with mutexes held. During a TLS handshake, which cannot be interrupted and resumed, it does nothing: no command waits then.
func (c *Conn) Wake() { c.wake(false) }

// wake interrupts a Read of the socket by a deadline in the past, which needs no second goroutine.
func (c *Conn) wake(always bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if always || !c.shaking.Load() {
		c.armed = past
		_ = c.wire.SetReadDeadline(past)
	}
}

// arm sets the read deadline to the end of the idle time, unless Read was woken. An earlier deadline stays: timeOut then finds that
// the idle time has not ended. So a busy connection sets no deadline per command.
func (c *Conn) arm() {
	at := c.idleAt()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.armed.IsZero() && !at.Before(c.armed) {
		return
	}
	c.armed = at
	if at == never {
		at = time.Time{}
	}
	_ = c.wire.SetReadDeadline(at)
}

// past is earlier than any deadline, and never is later.
var past, never = time.Unix(1, 0), time.Unix(1<<40, 0)

// idleAt returns when the client will have been idle, or not logged in, for too long. It is not idle while a command is under way.
func (c *Conn) idleAt() time.Time {
	limits := c.server.limits.Load()
	switch {
	case c.phase == greeted && limits.LoginTimeout > 0:
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

// timeOut handles the read deadline: Read was woken, or the client may be idle.
func (c *Conn) timeOut() {
	c.mu.Lock()
	woken := c.armed.Equal(past)
	c.armed = time.Time{}
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
