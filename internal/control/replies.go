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
	case code/100 == 1:
		c.CatchUp(quitPatience) // a QUIT that has arrived was sent before this reply
		cmd.announce()
		if cmd.opening != nil {
			c.answer(*cmd.opening)
			return
		}
	case code >= 200 && !more:
		c.finalLine(cmd, code, line)
		return
	case cmd.final != nil || cmd.verb.is(oneLine):
		return // a line before the final one, which is replaced
	}
	_ = c.send(append(appendClean(make([]byte, 0, len(line)+2), line), '\r', '\n'))
}

// finalLine handles the last line of a reply. The final reply of a transfer waits until the driver has closed its file.
func (c *Conn) finalLine(cmd *Command, code int, line []byte) {
	r := Reply{Code: code}
	if len(line) > len("550 ") {
		r.Text = string(line[len("550 "):])
	}
	if code == 500 && bytes.HasPrefix(line[3:], []byte(" Unhandled internal error")) {
		// The library has recovered from a panic, and does not close the handle (client_handler.go:646).
		r, cmd.final, cmd.open = internalError, nil, false
	}
	if cmd.open {
		cmd.pending = &r
		return
	}
	c.complete(cmd, r)
}

// complete sends the final reply of a command: the driver's, or r. A transfer ends with it, because no Read follows the end of the
// transfer's goroutine.
func (c *Conn) complete(cmd *Command, r Reply) {
	if cmd.final != nil {
		r = *cmd.final
	}
	cmd.replied = true
	if cmd.verb.after != nil {
		r = cmd.verb.after(c, cmd, r)
	}
	if !cmd.Transfers() {
		c.handler.End(cmd) // before the client can send the next command
	}
	err := c.send(r.AppendTo(make([]byte, 0, 96)))
	if err == nil && r.Rows != nil {
		err = c.sendRows(&r)
	}
	c.delivered(cmd, err)
	if r.Code == 421 { // RFC 959 section 4.2: the connection is closed
		c.give(order{why: ReasonClosed})
	}
	if cmd.Transfers() {
		c.finish(cmd)
	}
}

// quitPatience is how long the 1xx of a transfer waits at most for Read to examine input that has arrived.
const quitPatience = 20 * time.Millisecond

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

// sendRows sends the rows of a reply and its last line. It stops when the connection must end.
func (c *Conn) sendRows(r *Reply) error {
	var b []byte
	end, err := r.Rows(func(line string) error {
		if b = appendRow(b, line); len(b) < rowsMax {
			return nil
		}
		if c.order.Load() != nil {
			return errEnding
		}
		err := c.send(b)
		b = b[:0]
		return err
	})
	if err != nil {
		c.give(order{why: ReasonClosed}) // an earlier order counts
		return err
	}
	return c.send(appendLine(b, r.Code, ' ', cmp.Or(end, "End")))
}

var errEnding = errors.New("the connection ends")

// answer sends a reply without the library.
func (c *Conn) answer(r Reply) { _ = c.send(r.AppendTo(nil)) }

// send writes whole lines. After an error Read ends the connection.
func (c *Conn) send(lines []byte) error {
	c.handler.Said(lines)
	_, err := c.stream.Write(lines)
	if err != nil {
		c.give(order{why: c.broken(err)})
	}
	return err
}
