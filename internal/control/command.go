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
	// Line is the whole line as the client sent it, without its end and without Telnet signals in front.
	Line string

	conn       *Conn
	verb       *verb
	forLibrary string // the line for the library, without its end

	// These fields belong to the goroutine that executes the command.
	preliminary     *Reply // replaces the library's 1xx; nil: the library's is sent
	final           Reply  // replaces the library's last reply if it has a code
	ended           bool   // Handler.End was called
	undo            func() // see Lost
	undoIfUncertain bool   // undo is also called if the client may have read the reply, see Unconfirmed

	dataUse // zero for a command without a data connection
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

// Replace changes the parameter of the command. Only Handler.Begin may call it.
func (cmd *Command) Replace(param string) {
	cmd.Param, cmd.forLibrary = param, cmd.Verb+" "+param
}

// Reply sets a reply of the command: the preliminary one if the code is below 200, otherwise the final one. The last call before
// the reply is written counts. Without a call the client gets the library's reply. Only the goroutine that executes the command
// may call Reply.
func (cmd *Command) Reply(r Reply) {
	if r.Code < 200 {
		cmd.preliminary = &r
	} else {
		cmd.final = r
	}
}

// Lost registers f. It is called at most once, after the end of the connection, if the client did not receive the final reply: the
// write failed, or the client's TCP did not acknowledge the reply, or a reset followed the FIN and the reply was the last one, so
// the program closed before it read the reply. A complete line that arrives after the reply proves that the client received it.
//
// In doubt f is not called: after a reset without a FIN before the acknowledgement was due (RFC 1122 section 4.2.3.2), and if a
// program died without reading the reply. Systems other than Linux detect a failed write only. The call may come after
// Handler.Ended.
func (cmd *Command) Lost(f func()) { cmd.undo, cmd.undoIfUncertain = f, false }

// Unconfirmed registers f in place of Lost. It is also called if a reset ended the connection after the final reply, which the
// client may have read.
func (cmd *Command) Unconfirmed(f func()) { cmd.undo, cmd.undoIfUncertain = f, true }

// trimmed returns Param without the spaces around it.
func (cmd *Command) trimmed() string { return strings.Trim(cmd.Param, " ") }

// ErrWithdrawn is the error of Command.Wait and Command.WaitThrough.
var ErrWithdrawn = errors.New("the client hung up or sent another command")

// Wait waits, for example for the lock of an MKD, until poll returns true, and returns nil. It reads the connection meanwhile, and
// returns ErrWithdrawn if another line arrives or the client hangs up. It calls poll at once, after each Conn.Wake, and perhaps in
// between, but not after the client has hung up. poll must not block. Only the goroutine that executes the command may call Wait,
// and not for a transfer.
func (cmd *Command) Wait(poll func() bool) error { return cmd.waitUntil(poll, false) }

// WaitThrough is like Wait, but another line does not end the wait. That line is executed afterwards.
func (cmd *Command) WaitThrough(poll func() bool) error { return cmd.waitUntil(poll, true) }

func (cmd *Command) waitUntil(poll func() bool, through bool) error {
	c := cmd.conn
	for {
		if c.endRequest.Load() != nil || cmd.verb == nil {
			return ErrWithdrawn // Read carries out the request
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
