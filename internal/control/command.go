package control

import (
	"errors"
	"strings"
)

// Command is one complete line from the client. The driver finds the one that the library executes with
// [Conn.Command].
type Command struct {
	// Verb is the part before the first space, in upper case (RFC 959 section 5.3).
	Verb string
	// Param is what stands after the first space: bytes in no particular encoding, further leading spaces and trailing
	// ones included. Without NUL, CR or LF.
	Param string
	// Line is the whole line as it was sent, without its end and leading Telnet sequences.
	Line string

	conn *Conn
	verb *verb
	pass string // what the library gets, without the line end

	// What follows belongs to the goroutine that executes the command.
	unsaid    bool   // the next final reply is dropped: that of a command that goes ahead of this one
	opening   *Reply // what the driver says in place of the 1xx
	final     *Reply // and in place of the last reply
	replied   bool   // the last reply was sent, or could not be
	lost      func() // see Lost
	uncertain func() // see Unconfirmed

	transfer // its state, if it has a data connection
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

// Replace has the command executed with another parameter. It is for Handler.Begin.
func (cmd *Command) Replace(param string) {
	cmd.Param, cmd.pass = param, cmd.Verb+" "+param
}

// Say sets the words of a reply: of the preliminary one if the code is below 200, else of the final one. The last call
// before the reply is written counts. The words belong to the command: without any, the library's own are sent. It is for
// the goroutine that executes the command.
func (cmd *Command) Say(r Reply) {
	if r.Code < 200 {
		cmd.opening = &r
	} else {
		cmd.final = &r
	}
}

// Lost has f called, at most once, when the connection has ended, if the client did not receive the final reply: it could
// not be written, or the client's TCP did not acknowledge it, or a reset followed the FIN and nothing was written behind
// the reply: the program closed before it read the reply. Any complete line that arrives after the reply ends the matter.
//
// f is not called if the system cannot tell: a reset without a FIN that comes before the acknowledgement was due (RFC 1122
// section 4.2.3.2), or a program that read nothing and did not close before it died. Systems other than Linux report a
// failed write only. f may be called after Handler.Ended.
func (cmd *Command) Lost(f func()) { cmd.lost = f }

// Unconfirmed has f called as Lost does, and also if a reset ended the connection behind the final reply: the client may have
// read it, or not.
func (cmd *Command) Unconfirmed(f func()) { cmd.uncertain = f }

// trimmed is Param without the spaces around it.
func (cmd *Command) trimmed() string { return strings.Trim(cmd.Param, " ") }

// ErrWithdrawn is returned by Command.Wait.
var ErrWithdrawn = errors.New("the client has gone or has sent another command")

// Wait lets the command wait, such as MKD of a held lock, and returns nil when poll has returned true. Meanwhile the
// connection is read: when another line arrives, or the client goes, Wait returns ErrWithdrawn. poll is called at
// first, after each Conn.Wake, and perhaps in between, but not for a client that has hung up. It must not block. Wait
// is for the goroutine that executes the command, and not for transfers. Outside of a command nothing waits.
func (cmd *Command) Wait(poll func() bool) error { return cmd.wait(poll, false) }

// WaitThrough is Wait of a command that another line does not withdraw: the lines that arrive are executed behind it.
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
