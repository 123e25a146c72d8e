package control

import (
	"bytes"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"time"
)

// Write takes reply lines of the library. It never reports a failure: the library could do no
// more than log it, and Read tells it of the end. A line is written as a whole, so that lines of the transfer's
// goroutine and answers never mix.
func (c *Conn) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		end := bytes.IndexByte(rest, '\n') + 1
		if end == 0 {
			end = len(rest)
		}
		c.replyLine(rest[:end])
		rest = rest[end:]
	}
	return len(p), nil
}

// replyLine sends a line of the library, or what its handler wants instead. What it means for
// the transfer is noted after it was written, so that nothing overtakes it.
func (c *Conn) replyLine(line []byte) {
	text := bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
	c.mu.Lock()
	code, final, f := c.transfer.line(text)
	dead := c.ended
	c.mu.Unlock()
	if f == dropLine {
		return
	}

	out := line
	instead, drop := c.handler.Reply(c, code, text)
	if instead != nil || f == keepLine || !clean(line) {
		if instead == nil {
			instead = text
		}
		out = append(appendClean(make([]byte, 0, len(instead)+2), instead), '\r', '\n')
	}
	if drop {
		out = nil
	}
	if f == sendLine && !drop && !dead {
		_ = c.send(out)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if f == keepLine {
		c.transfer.kept = out
	}
	further, over := c.transfer.sent(final)
	if over {
		c.lastActive = time.Now()
	}
	if !further {
		return
	}
	c.attention = true // Read may be about to wait, and think that nothing has changed
	if c.watch {
		c.wakeLocked()
	}
}

// clean reports whether the line of the library can be sent as it is.
func clean(line []byte) bool {
	return len(line) >= 2 && bytes.IndexByte(line, '\r') == len(line)-2 && line[len(line)-1] == '\n' &&
		bytes.IndexByte(line, 0) < 0
}

// send writes whole lines. It does the handshake of implicit TLS before the first.
func (c *Conn) send(lines []byte) error {
	c.mu.Lock()
	stream, shaken := c.stream, c.shaken
	c.mu.Unlock()
	if !shaken {
		if err := c.shake(stream.(*tls.Conn)); err != nil {
			c.lost(err)
			return err
		}
	}
	_, err := stream.Write(lines)
	if err != nil {
		c.lost(err)
	}
	return err
}

// lost notes that replies cannot be written any more, and makes Read end the connection.
func (c *Conn) lost(err error) {
	why := ReasonReset
	switch {
	case errors.Is(err, errHandshake):
		why = ReasonTLS
	case errors.Is(err, os.ErrDeadlineExceeded):
		why = ReasonSlow
	case errors.Is(err, net.ErrClosed):
		why = ReasonClosed
	}
	c.give(order{rank: 3, why: why, silent: true})
}
