package control

import (
	"crypto/tls"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"syscall"
	"time"
)

// fill waits for input, or for something else to happen. It reports false when the connection is over.
func (c *Conn) fill() bool {
	space := c.in.space(c.mostAhead())
	if c.quitting {
		space = nil
	}
	stream, ok := c.park()
	if !ok {
		return true
	}
	var n int
	var err error
	switch {
	case space != nil:
		n, err = stream.Read(space)
	case c.quitting:
		err = hungUpError(c.wire.waitHangUp(hangReset), syscall.ECONNRESET)
	default: // too much was read ahead; but a hang-up must not go unnoticed
		err = hungUpError(c.wire.waitHangUp(hangAny), io.EOF)
	}
	woken := c.unpark(n > 0 && c.in.added(n))

	switch {
	case err == nil || n > 0: // an error will come again
		return true
	case errors.Is(err, os.ErrDeadlineExceeded):
		return woken || c.idle()
	}
	return c.eof(err)
}

func hungUpError(err, hungUp error) error {
	if err == nil {
		return hungUp
	}
	return err
}

// mostAhead is how many bytes may be read and not acted on.
func (c *Conn) mostAhead() int {
	if c.wire.raw == nil { // it has no other way to notice a hang-up than to read on
		return math.MaxInt
	}
	return max(inputMax, 2*c.opts.MaxLine)
}

// park says that Read is about to wait for the socket. It reports false if there is something to look at first.
func (c *Conn) park() (net.Conn, bool) {
	stream, err := c.secured()
	if err != nil {
		c.lost(err)
		return nil, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reader == readerCalled {
		return nil, false
	}
	c.reader = readerWaiting
	c.looked = c.wire.got.Load()
	return stream, true
}

// unpark says that Read is back, and whether it got a complete line: then the replies before it count as delivered.
func (c *Conn) unpark(line bool) (woken bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	woken = c.reader == readerWoken
	c.reader = readerBusy
	if line {
		c.unheard = nil
	}
	if woken {
		_ = c.wire.SetReadDeadline(c.deadline)
	}
	return woken
}

// attend takes note that Read looks around now, and returns the order to end the connection, if there is one.
func (c *Conn) attend() order {
	c.mu.Lock()
	c.reader = readerBusy
	o, idleLimit, lastActive := c.ordered, c.idleLimit, c.lastActive
	c.mu.Unlock()
	if idleLimit != c.idleTime {
		c.idleTime = idleLimit
		c.armIdle(lastActive.Add(idleLimit))
	}
	return o
}

// Wake makes a command that waits poll, and Read look around. It may be called at any time, also when nothing waits,
// with other locks held: it calls nobody and does not block.
func (c *Conn) Wake() {
	c.mu.Lock()
	c.wakeLocked()
	c.mu.Unlock()
}

// wakeLocked wakes a Read that waits for the socket by a deadline in the past: no goroutine stands by for that.
func (c *Conn) wakeLocked() {
	switch c.reader {
	case readerBusy:
		c.reader = readerCalled
	case readerWaiting:
		c.reader = readerWoken
		c.wire.wakeReader()
	}
}

// eof deals with the end of the input. Behind a QUIT it is no accident: what is running and what stands before the QUIT
// are finished. It reports false when the connection is over.
func (c *Conn) eof(err error) bool {
	c.sawEnd()
	switch {
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		if !c.quitting && c.wire.raw != nil && c.hasQuit() {
			c.quitting = true
			return true
		}
		c.ended(ReasonEOF)
	case errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe):
		c.ended(ReasonClosed)
	default:
		c.ended(c.broken(err))
	}
	return false
}

// hasQuit reports whether one of the lines that wait for their turn is QUIT.
func (c *Conn) hasQuit() (found bool) {
	all := input{limit: c.in.limit, buf: c.in.buf, r: c.in.r, w: c.in.w}
	all.lookAhead(func(line []byte) bool {
		cmd, _ := parse(line, false)
		found = found || cmd != nil && cmd.Verb == "QUIT"
		return !found
	})
	return found
}

// broken says what a failed read means.
func (c *Conn) broken(err error) Reason {
	var errno syscall.Errno
	if c.TLS() != nil && !errors.As(err, &errno) {
		return ReasonTLS
	}
	return ReasonReset
}

// hangUp sends the end of the connection.
func (c *Conn) hangUp() {
	c.mu.Lock()
	stream := c.stream
	c.mu.Unlock()
	if t, ok := stream.(*tls.Conn); ok {
		_ = t.CloseWrite()
	}
	c.wire.shutWrite()
}

// armIdle sets when Read is to look whether the client is idle. That is not done for each command: a timer that fires
// too early is set anew.
func (c *Conn) armIdle(at time.Time) {
	if c.idleTime <= 0 {
		at = time.Time{}
	}
	c.deadline = at
	_ = c.wire.SetReadDeadline(at)
}

// idle is for when that time has come. It reports false when the connection is over.
func (c *Conn) idle() bool {
	if c.idleTime <= 0 {
		c.armIdle(time.Time{})
		return true
	}
	now := time.Now()
	c.mu.Lock()
	busy := c.state != stateReady
	until := c.lastActive.Add(c.idleTime)
	c.mu.Unlock()
	switch {
	case busy:
		c.armIdle(now.Add(c.idleTime))
		return true
	case now.Before(until):
		c.armIdle(until)
		return true
	}
	if more := c.handler.IdleFor(); more > 0 {
		c.armIdle(now.Add(more))
		return true
	}
	c.goodbye(c.opts.IdleReply, ReasonIdle)
	return false
}
