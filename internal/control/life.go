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

// endRequest is a request to end a connection.
type endRequest struct {
	why   Reason
	reply Reply // sent last; the zero Reply: none
}

// waitsFor reports whether the request waits for the end of a command: at a shutdown transfers finish.
func (o *endRequest) waitsFor(cmd *Command) bool { return o.why == ReasonShutdown && cmd.Transfers() }

// Kick makes Read end the connection, and does not wait for that. Read withdraws a command that waits, aborts a transfer, writes the
// reply (421) if it can, and ends. A command that the library is executing is finished first.
func (c *Conn) Kick(r Reply) {
	c.wire.limitWrites()
	c.requestEnd(endRequest{why: ReasonKicked, reply: r})
	if cmd := c.current.Load(); cmd.hasQuitEarly() { // Read may already wait for the transfer
		cmd.Abort(ErrStopped)
	}
}

// requestEnd makes Read end the connection. The first request counts, but any other replaces that of a shutdown, which waits for a transfer.
func (c *Conn) requestEnd(o endRequest) {
	if !c.endRequest.CompareAndSwap(nil, &o) {
		if before := c.endRequest.Load(); before.why == ReasonShutdown {
			c.endRequest.CompareAndSwap(before, &o)
		}
	}
	c.interruptRead(true)
}

// conclude ends the session: it ends the transfer, if there is one, undoes lost grants, and calls Handler.Ended.
func (c *Conn) conclude(o endRequest) {
	c.requestEnd(o) // from now on Gone returns true
	c.wire.limitWrites()
	if cmd := c.current.Load(); cmd.Transfers() {
		switch quitEarly := cmd.hasQuitEarly(); {
		case o.why == ReasonShutdown, o.why == ReasonKicked, o.why == ReasonIdle:
			cmd.Abort(ErrStopped)
		case !quitEarly || o.why != ReasonEOF:
			cmd.Abort(ErrHungUp)
		}
		<-cmd.done
	}
	c.unprepare()
	c.mu.Lock()
	unacknowledged := c.unacknowledged
	c.unacknowledged = nil
	c.mu.Unlock()
	if o.reply.Code != 0 {
		c.undoLost(unacknowledged) // before the last reply, which a client that has closed answers with a reset
		unacknowledged = nil
		c.answer(o.reply)
	}
	c.handler.Ended(o.why)
	c.undoLost(unacknowledged) // this may take a moment; the client's next connection finds the session ended
}

// Close closes the connection. The library calls it after Read has returned io.EOF.
func (c *Conn) Close() error {
	why := ReasonClosed
	if c.Command().Is("QUIT") {
		why = ReasonQuit
	}
	c.concluded.Do(func() { c.conclude(endRequest{why: why}) })
	if !c.server.removeConn(c) {
		return nil // closed before
	}
	return c.stream.Close() // with TLS its close_notify, then wire.Close
}

// Gone reports whether the client has hung up (FIN or RST has arrived, perhaps after unread data), or the connection has ended or is
// about to end for another reason. During a transfer whose QUIT came before the 1xx, only an RST without an earlier FIN counts: RFC 959
// section 4.1.1 requires the transfer to continue after a FIN, and replies to a closed connection cause an RST.
func (c *Conn) Gone() bool {
	cmd := c.current.Load()
	if cmd.hasQuitEarly() {
		p := c.wire.peer()
		return p.broken && !p.finished
	}
	if o := c.endRequest.Load(); o != nil && !o.waitsFor(cmd) {
		return true
	}
	return c.wire.hungUp()
}

// fill waits for input or for a Wake. If the connection must end, fill requests that.
func (c *Conn) fill() {
	space := c.in.space()
	if len(space) == 0 {
		c.requestEnd(endRequest{why: ReasonClosed, reply: Reply{Code: 421, Text: "more than 64 KiB of commands while another one runs"}})
		return
	}
	c.arm()
	c.examined.Store(c.wire.bytesRead.Load())
	n, err := c.stream.Read(space)
	switch {
	case n > 0: // an error comes again
		if c.in.added(n) { // a line: the client has received the replies before it
			c.mu.Lock()
			c.unacknowledged = nil
			c.mu.Unlock()
		}
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.handleDeadline()
	default:
		c.requestEnd(endRequest{why: c.reasonOf(err)})
	}
}

// reasonOf returns the reason for an error of Read or Write.
func (c *Conn) reasonOf(err error) Reason {
	var errno syscall.Errno
	switch {
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

// Wake makes a command that waits poll again, and Read check for requests to end and new limits. It does not block and calls nothing, so it may
// be called with mutexes held. During a TLS handshake, which cannot be interrupted and resumed, it has no effect: no command waits
// then.
func (c *Conn) Wake() { c.interruptRead(false) }

// interruptRead interrupts a Read of the socket by a deadline in the past, which needs no second goroutine.
func (c *Conn) interruptRead(always bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if always || !c.inHandshake {
		c.armed = past
		_ = c.wire.SetReadDeadline(past)
	}
}

// arm sets the read deadline to the end of the idle time, unless Read was woken. An earlier deadline stays: handleDeadline then finds that
// the idle time has not ended. So a busy connection sets no deadline for each command.
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
	case !c.isLoggedIn() && limits.LoginTimeout > 0:
		return c.started.Add(limits.LoginTimeout)
	case limits.IdleTimeout <= 0:
		return never
	case c.current.Load() != nil:
		return time.Now().Add(limits.IdleTimeout)
	}
	if at := c.wire.lastReply().Add(limits.IdleTimeout); at.After(c.notIdleBefore) {
		return at
	}
	return c.notIdleBefore
}

// handleDeadline handles the read deadline: Read was woken, or the client may be idle.
func (c *Conn) handleDeadline() {
	c.mu.Lock()
	woken := c.armed.Equal(past)
	c.armed = time.Time{}
	c.mu.Unlock()
	now := time.Now()
	if at := c.idleAt(); woken || now.Before(at) {
		return
	}
	text := "idle timeout"
	if _, limited := c.LoginDeadline(); limited && !c.isLoggedIn() {
		text = "the login took too long"
	} else if more := c.handler.IdleFor(); more > 0 {
		c.notIdleBefore = now.Add(more)
		return
	}
	c.requestEnd(endRequest{why: ReasonIdle, reply: Reply{Code: 421, Text: text}})
}
