package control

import (
	"errors"
	"strings"
)

// Command is a complete line from the client. [Conn.Command] returns the one that the library executes.
type Command struct {
	// Verb is the part before the first space, in upper case (RFC 959 section 5.3).
	Verb string
	// Param is the part after the first space: bytes of any encoding, with further spaces, without NUL, CR or LF.
	Param string
	// Line is the whole line as it was sent, without its end and without Telnet signals in front.
	Line string

	conn *Conn
	verb *verb
	pass string // the line for the library, without its end

	// These fields belong to the goroutine that executes the command.
	opening   *Reply // replaces the 1xx of the library
	final     *Reply // replaces the last reply
	replied   bool   // the last reply was sent, or failed to be sent
	lost      func() // see Lost
	uncertain func() // see Unconfirmed

	transfer // the state of a transfer
}

// Is reports whether the command has one of the verbs.
func (cmd *Command) Is(verbs ...string) bool {
	for _, v := range verbs {
		if cmd != nil && cmd.Verb == v {
			return true
		}
	}
	return false
}

// Replace changes the parameter of the command. Call it in Handler.Begin only.
func (cmd *Command) Replace(param string) {
	cmd.Param, cmd.pass = param, cmd.Verb+" "+param
}

// Say sets a reply of the command: the preliminary one if the code is below 200, otherwise the final one. The last call before the
// reply is written counts. Without a call the library's reply is sent. Only the goroutine that executes the command may call it.
func (cmd *Command) Say(r Reply) {
	if r.Code < 200 {
		cmd.opening = &r
	} else {
		cmd.final = &r
	}
}

// Lost registers f to be called, at most once, after the end of the connection, if the client did not receive the final reply: the
// write failed, or the client's TCP did not acknowledge it, or a reset followed the FIN and the reply was the last one, so the program
// closed before it read the reply. A complete line that arrives after the reply proves that the client received it.
//
// f is not called in doubt: after a reset without a FIN before the acknowledgement was due (RFC 1122 section 4.2.3.2), and if a
// program died without reading the reply. Systems other than Linux detect a failed write only. The call may come after
// Handler.Ended.
func (cmd *Command) Lost(f func()) { cmd.lost = f }

// Unconfirmed registers f like Lost, and f is also called if a reset ended the connection after the final reply, which the client may
// have read or not.
func (cmd *Command) Unconfirmed(f func()) { cmd.uncertain = f }

// trimmed returns Param without the spaces around it.
func (cmd *Command) trimmed() string { return strings.Trim(cmd.Param, " ") }

// ErrWithdrawn is the error of Command.Wait and Command.WaitThrough.
var ErrWithdrawn = errors.New("the client hung up or sent another command")

// Wait waits, such as for MKD of a held lock, until poll returns true, and returns nil. It reads the connection meanwhile, and returns
// ErrWithdrawn if another line arrives or the client hangs up. It calls poll first, after each Conn.Wake, and perhaps in between, but
// not after the client has hung up. poll must not block. Only the goroutine that executes the command may call Wait, and not for a
// transfer.
func (cmd *Command) Wait(poll func() bool) error { return cmd.wait(poll, false) }

// WaitThrough is like Wait, but another line does not end it: that line is executed afterwards.
func (cmd *Command) WaitThrough(poll func() bool) error { return cmd.wait(poll, true) }

func (cmd *Command) wait(poll func() bool, through bool) error {
	c := cmd.conn
	for {
		if c.order.Load() != nil || cmd.verb == nil {
			return ErrWithdrawn // Read obeys the order
		}
		if !c.Gone() && poll() {
			return nil
		}
		if _, ok := c.in.peek(); ok && !through {
			return ErrWithdrawn
		}
		c.fill()
	}
}
