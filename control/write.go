package control

import (
	"bytes"
	"crypto/tls"
	"errors"
	"net"
	"os"
)

// Write takes reply lines of the library. It never reports a failure: the library could do no
// more than log it, and Read tells it of the end. A line is written as a whole.
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

// replyLine sends a line of the library, or what its handler wants instead.
func (c *Conn) replyLine(line []byte) {
	text := bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
	instead, drop := c.handler.Reply(c, replyCode(text), text)
	c.mu.Lock()
	dead := c.ended
	c.mu.Unlock()
	if drop || dead {
		return
	}
	if instead != nil || !clean(line) {
		if instead == nil {
			instead = text
		}
		line = append(appendClean(make([]byte, 0, len(instead)+2), instead), '\r', '\n')
	}
	_ = c.send(line)
}

// replyCode returns the code that a line begins with, 0 if it begins with none.
func replyCode(text []byte) (code int) {
	if len(text) < 3 {
		return 0
	}
	for _, b := range text[:3] {
		if b < '0' || b > '9' {
			return 0
		}
		code = code*10 + int(b-'0')
	}
	return code
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
