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

	// What follows is guarded by conn.mu.
	unsaid  bool   // the next final reply is dropped: that of a command that goes ahead of this one
	opening *Reply // what the driver says in place of the 1xx
	final   *Reply // and in place of the last reply
	lost    []func()
	notify  func(Interruption)
	untold  []Interruption // those of which notify was not told
	code    int            // of the final reply, once it is written
	text    []byte         // of it, as it is sent
	held    int            // of a transfer: what it is not over before, see Hold; its final reply is one
	opened  bool           // of a transfer: it was held, so that a data connection was awaited
	begun   bool           // of a transfer: its 1xx was sent
	left    bool           // of a transfer: QUIT came before that
	done    chan struct{}  // of a transfer: closed when it is over
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

// Transfers reports whether the command has a data connection.
func (cmd *Command) Transfers() bool { return cmd != nil && cmd.verb.is(transfers) }

// Say sets the words of a reply: of the preliminary one if the code is below 200, else of the final one. The last call
// before the library writes the reply counts. The words belong to the command: if it says nothing, the library's own
// are sent.
func (cmd *Command) Say(r Reply) {
	cmd.conn.mu.Lock()
	defer cmd.conn.mu.Unlock()
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
func (cmd *Command) Lost(f func()) {
	cmd.conn.mu.Lock()
	defer cmd.conn.mu.Unlock()
	cmd.lost = append(cmd.lost, f)
}

// trimmed is Param without the spaces around it.
func (cmd *Command) trimmed() string { return strings.Trim(cmd.Param, " ") }

// Hold says that a transfer is not over before Release, whatever the library replies: it says 425 before it closes the
// handle (handle_files.go:108). A transfer that was refused is never held, and its passive port stays open.
func (cmd *Command) Hold() {
	cmd.conn.mu.Lock()
	defer cmd.conn.mu.Unlock()
	cmd.held++
	cmd.opened = true
}

// Release ends a Hold.
func (cmd *Command) Release() {
	cmd.conn.mu.Lock()
	cmd.held--
	over := cmd.held == 0 && cmd.done != nil
	cmd.conn.mu.Unlock()
	if over {
		cmd.conn.finish(cmd)
	}
}

// Interruption is something that happens while a transfer is under way.
type Interruption uint8

// The interruptions.
const (
	Aborted  Interruption = iota + 1 // ABOR was read; it is answered behind the transfer
	Quitting                         // QUIT was read behind the 150; it is executed behind the transfer
	Ended                            // the client closed the connection, or it was lost
	Stopped                          // the server ended it: Conn.Kick, Server.Shutdown, the idle time
)

// OnInterrupt has f called for each interruption of the command, those before the call included. f must not block. It
// is called on the goroutine that reads commands, or on the caller's.
func (cmd *Command) OnInterrupt(f func(Interruption)) {
	cmd.conn.mu.Lock()
	untold := cmd.untold
	cmd.untold, cmd.notify = nil, f
	cmd.conn.mu.Unlock()
	for _, i := range untold {
		f(i)
	}
}

func (cmd *Command) interrupt(i Interruption) {
	cmd.conn.mu.Lock()
	f := cmd.notify
	if f == nil {
		cmd.untold = append(cmd.untold, i)
	}
	cmd.conn.mu.Unlock()
	if f != nil {
		f(i)
	}
}

// quit notes a QUIT behind the transfer and reports whether it came before the 1xx.
func (cmd *Command) quit() (early bool) {
	cmd.conn.mu.Lock()
	defer cmd.conn.mu.Unlock()
	cmd.left = cmd.left || !cmd.begun
	return cmd.left
}

// hasLeft reports whether the client of the transfer said QUIT before the 1xx: it may hang up and the transfer goes on.
func (cmd *Command) hasLeft() bool {
	if cmd == nil {
		return false
	}
	cmd.conn.mu.Lock()
	defer cmd.conn.mu.Unlock()
	return cmd.left
}

// ErrWithdrawn is returned by Command.Wait.
var ErrWithdrawn = errors.New("the client has gone or has sent another command")

// Wait lets the command wait, such as MKD of a held lock, and returns nil when poll has returned true. Meanwhile the
// connection is read: when another line arrives, or the client goes, Wait returns ErrWithdrawn. poll is called at
// first, after each Conn.Wake, and perhaps in between, but not for a client that has hung up. It must not block. Wait
// is for the goroutine that executes the command, and not for transfers. Outside of a command nothing waits.
func (cmd *Command) Wait(poll func() bool) error {
	c := cmd.conn
	for {
		if _, o := c.state(); o != nil || cmd.verb == nil {
			return ErrWithdrawn // Read obeys the order
		}
		if !c.Gone() && poll() {
			return nil
		}
		if _, ok := c.in.peek(); ok {
			return ErrWithdrawn
		}
		c.fill()
	}
}
