package control

import (
	"bytes"
	"cmp"
	"errors"
	"time"
)

// Write accepts reply lines of the library. It returns no error: the library would only log it, and Read returns io.EOF soon.
func (c *Conn) Write(p []byte) (int, error) {
	for line := range bytes.Lines(p) {
		c.libraryLine(c.current.Load(), bytes.TrimRight(line, "\r\n"))
	}
	return len(p), nil
}

// libraryLine sends a reply line of the library, or the driver's reply in its place.
func (c *Conn) libraryLine(cmd *Command, line []byte) {
	code, more := replyCode(line) // a line within a reply of several has no code, or is marked (RFC 959 section 4.2)
	switch {
	case cmd == nil: // the greeting
		if c.isTLS() && c.stream == c.wire {
			c.encrypt(c.tls) // implicit TLS
		}
	case code/100 == 1:
		c.CatchUp(quitPatience) // a QUIT that has arrived was sent before this reply
		cmd.announce()
		if cmd.preliminary != nil {
			c.answer(*cmd.preliminary)
			return
		}
	case code >= 200 && !more:
		c.finalLine(cmd, code, line)
		return
	case cmd.final.Code != 0 || cmd.verb.is(oneLine):
		return // a line before the final one, which is replaced
	}
	_ = c.send(append(appendClean(nil, line), '\r', '\n'))
}

// finalLine handles the last line of a reply. The final reply of a transfer waits until the driver has closed its file.
func (c *Conn) finalLine(cmd *Command, code int, line []byte) {
	text := line[min(len("550 "), len(line)):]
	switch {
	case code == 500 && bytes.HasPrefix(text, []byte("Unhandled internal error")):
		// The library has recovered from a panic, and does not close the handle (client_handler.go:646).
		cmd.final, cmd.open = internalError, false
	case cmd.final.Code == 0:
		cmd.final = Reply{Code: code, Text: string(text)}
	}
	if cmd.open {
		cmd.answered = true
		return
	}
	c.complete(cmd)
}

// complete sends the final reply of a command. A transfer ends with it, because no Read follows the end of the transfer's goroutine.
func (c *Conn) complete(cmd *Command) {
	r := cmd.final
	if cmd.verb.after != nil {
		r = cmd.verb.after(c, cmd, r)
	}
	if !cmd.Transfers() {
		c.handler.End(cmd) // before the client can send the next command
		cmd.ended = true
	}
	c.reply = r.AppendTo(c.reply[:0])
	err := c.send(c.reply)
	if r.Rows != nil {
		err = c.sendRows(&r, err)
	}
	if cap(c.reply) > largeReply {
		c.reply = nil // an idle session takes little memory
	}
	c.recordDelivery(cmd, err)
	if r.Code == 421 { // RFC 959 section 4.2: the connection is closed
		c.requestEnd(endRequest{why: ReasonClosed})
	}
	if cmd.Transfers() {
		c.finish(cmd)
	}
}

const (
	// quitPatience is how long the 1xx of a transfer waits at most for Read to examine input that has arrived.
	quitPatience = 20 * time.Millisecond
	// largeReply is how many bytes a connection keeps for its next reply.
	largeReply = 512
)

var internalError = Reply{Code: 451, Text: "internal error"}

// replyCode returns the code at the beginning of a line, or 0, and whether more lines follow.
func replyCode(line []byte) (code int, more bool) {
	if len(line) < 3 {
		return 0, false
	}
	for _, b := range line[:3] {
		if b < '0' || b > '9' {
			return 0, false
		}
		code = code*10 + int(b-'0')
	}
	return code, len(line) > 3 && line[3] == '-'
}

// rowsMax is how many bytes of Rows are buffered before they are sent.
const rowsMax = 16 << 10

// sendRows sends the rows of a reply and its last line. It stops when the connection must end, or at once if the line before was not sent.
func (c *Conn) sendRows(r *Reply, failed error) error {
	var b []byte
	end, err := r.Rows(func(line string) error {
		if b = appendRow(b, line); len(b) < rowsMax || failed != nil {
			return failed
		}
		if c.endRequest.Load() != nil {
			return errEnding
		}
		err := c.send(b)
		b = b[:0]
		return err
	})
	if err != nil {
		c.requestEnd(endRequest{why: ReasonClosed}) // an earlier request counts
		return err
	}
	return c.send(appendLine(b, r.Code, ' ', cmp.Or(end, "End")))
}

var errEnding = errors.New("the connection ends")

// answer sends a reply without the library.
func (c *Conn) answer(r Reply) { _ = c.send(r.AppendTo(nil)) }

// send writes whole lines. After an error Read ends the connection.
func (c *Conn) send(lines []byte) error {
	c.handler.Replied(lines)
	_, err := c.stream.Write(lines)
	if err != nil {
		c.requestEnd(endRequest{why: c.reasonOf(err)})
	}
	return err
}
