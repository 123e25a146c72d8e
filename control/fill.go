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

// fill waits for input, or for something else to happen. It reports false when the
// connection is over.
func (c *Conn) fill(running bool) bool {
	space := c.in.space(c.mostAhead())
	if c.ending && running {
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
	case c.ending:
		err = hungUpError(c.wire.waitHangUp(hangReset), syscall.ECONNRESET)
	default: // too much is read ahead; but a hang-up must not go unnoticed
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

// park says that Read is about to wait for the socket. It reports false if there is
// something to look at first.
func (c *Conn) park() (net.Conn, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.attention {
		return nil, false
	}
	c.parked = true
	c.looked = c.wire.got.Load()
	c.watch = c.haveHead || c.order.rank != 0
	return c.stream, true
}

// unpark says that Read is back, and whether it got a complete line: with that, the
// replies before it count as delivered.
func (c *Conn) unpark(line bool) (woken bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parked, c.watch = false, false
	if line {
		c.undeliv = nil
	}
	woken = c.woken
	c.woken = false
	if woken {
		_ = c.wire.SetReadDeadline(c.deadline)
	}
	return woken
}

// eof deals with the end of the input. Behind a QUIT it is no accident: what is running
// and what stands before the QUIT are finished.
func (c *Conn) eof(err error) bool {
	c.sawEnd()
	switch {
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		if !c.ending && c.wire.raw != nil && (c.haveHead && c.head.Verb == "QUIT" || c.in.has("QUIT")) {
			c.ending = true
			return true
		}
		c.finish(ReasonEOF)
	case errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe):
		c.finish(ReasonClosed)
	default:
		c.finish(c.broken(err))
	}
	return false
}

// broken says what a failed read means.
func (c *Conn) broken(err error) Reason {
	var errno syscall.Errno
	if _, secure := c.stream.(*tls.Conn); secure && !errors.As(err, &errno) {
		return ReasonTLS
	}
	return ReasonReset
}

// hangUp sends the end of the connection.
func (c *Conn) hangUp() {
	if t, ok := c.stream.(*tls.Conn); ok {
		_ = t.CloseWrite()
	}
	c.wire.shutWrite()
}

// armIdle sets when Read is to look whether the client is idle. That is not done for each
// command: a timer that fires too early is set anew.
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
	running := c.transfer.running
	until := c.lastActive.Add(c.idleTime)
	c.mu.Unlock()
	switch {
	case running || c.waiter != nil:
		c.armIdle(now.Add(c.idleTime))
		return true
	case now.Before(until):
		c.armIdle(until)
		return true
	case c.idler != nil:
		if more := c.idler.IdleFor(c); more > 0 {
			c.armIdle(now.Add(more))
			return true
		}
	}
	c.goodbye(c.opts.IdleReply, ReasonIdle)
	return false
}
