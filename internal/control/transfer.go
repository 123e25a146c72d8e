package control

import (
	"errors"
	"net"
	"time"
)

// The reasons for which a client, or the server, ends a transfer.
var (
	ErrAborted = errors.New("aborted by ABOR")
	ErrQuit    = errors.New("QUIT came before the upload was complete")
	ErrHungUp  = errors.New("the client hung up before the transfer was confirmed")
	ErrStopped = errors.New("the server ended the session")
)

// stage is how far a transfer has come. It only grows.
type stage uint8

const (
	awaiting stage = iota // for its data connection
	moving                // bytes
	sealed                // its outcome is certain: too late to abort it
	aborted               // cause says why
)

// transfer is the state of a Command that has a data connection. Conn.mu guards its stage, cause, socket, begun, left, quit
// and over; the rest belongs to the goroutine that executes it, or never changes.
type transfer struct {
	port    *Port         // the passive port that its client was told of; nil: none
	done    chan struct{} // closed when it is over; nil: the command is no transfer
	stage   stage
	cause   error         // of aborted
	socket  net.Conn      // of moving, below TLS
	begun   bool          // its 1xx was sent
	left    bool          // QUIT came before that: the client may hang up, and the transfer goes on
	quit    bool          // QUIT came behind that
	opened  bool          // the driver has opened what is transferred
	open    bool          // and has not closed it yet
	pending *Reply        // the final reply, which waits for that
	over    chan struct{} // closed when it is aborted; nil: nothing waits for that
}

// Transfers reports whether the command has a data connection.
func (cmd *Command) Transfers() bool { return cmd != nil && cmd.verb.is(transfers) }

// Opened reports that the driver has opened what is transferred. The transfer is over, and its final reply is sent, only behind
// Closed, whatever the library replies: it says 425 before it closes its handle (handle_files.go:108). A transfer that was refused is
// never opened, and its passive port stays open.
func (cmd *Command) Opened() { cmd.opened, cmd.open = true, true }

// Closed ends what Opened began. The words of the final reply were said.
func (cmd *Command) Closed() {
	cmd.open = false
	if r := cmd.pending; r != nil {
		cmd.conn.complete(cmd, *r)
	}
}

// Connected reports the data connection, below TLS, to which bytes are about to move. It returns the cause if the transfer was aborted
// before.
func (cmd *Command) Connected(socket net.Conn) error {
	cmd.conn.mu.Lock()
	defer cmd.conn.mu.Unlock()
	if cmd.stage == awaiting {
		cmd.stage, cmd.socket = moving, socket
	}
	return cmd.cause
}

// Abort ends the transfer, unless it was sealed or aborted before: the first cause counts. Its data connection is closed, below TLS, which would
// wait five seconds to say goodbye to a client that does not read.
func (cmd *Command) Abort(cause error) {
	cmd.conn.mu.Lock()
	defer cmd.conn.mu.Unlock()
	switch cmd.stage {
	case awaiting:
		cmd.port.close()
	case moving:
		_ = cmd.socket.Close() // whatever it says, the connection is of no more use
	default:
		return
	}
	cmd.stage, cmd.cause = aborted, cause
	if cmd.over != nil {
		close(cmd.over)
	}
}

// Aborted returns a channel that is closed when the transfer is aborted: for one that waits before it opens anything.
func (cmd *Command) Aborted() <-chan struct{} {
	cmd.conn.mu.Lock()
	defer cmd.conn.mu.Unlock()
	if cmd.over == nil {
		cmd.over = make(chan struct{})
		if cmd.stage == aborted {
			close(cmd.over)
		}
	}
	return cmd.over
}

// Cause returns why the transfer was aborted; nil: it was not.
func (cmd *Command) Cause() error {
	cmd.conn.mu.Lock()
	defer cmd.conn.mu.Unlock()
	return cmd.cause
}

// Seal makes it too late to abort the transfer, or returns why that has happened. A client that has said QUIT must have proven that nothing is
// missing.
func (cmd *Command) Seal(proven bool) error {
	cmd.conn.mu.Lock()
	defer cmd.conn.mu.Unlock()
	switch {
	case cmd.stage == aborted:
		return cmd.cause
	case cmd.quit && !proven:
		return ErrQuit
	}
	cmd.stage = sealed
	return nil
}

// hasLeft reports whether the client of a transfer has said QUIT before the 1xx: it may hang up and the transfer goes on.
func (cmd *Command) hasLeft() bool {
	if cmd == nil {
		return false
	}
	cmd.conn.mu.Lock()
	defer cmd.conn.mu.Unlock()
	return cmd.left
}

// How long a client that has said QUIT behind a transfer may take to connect to its passive port.
const (
	promptConnection = 10 * time.Millisecond // it waits for the reply to its QUIT
	lateConnection   = 5 * time.Second       // the QUIT came together with the transfer, or the client has hung up
)

// quits acts on a QUIT behind the transfer. One that comes before the data connection is an orderly end, and the client has so long to
// connect.
func (cmd *Command) quits(within time.Duration) {
	c := cmd.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if cmd.begun {
		cmd.quit = true
		return
	}
	cmd.left = true
	time.AfterFunc(within, func() {
		if within < lateConnection && c.wire.hungUp() { // PHP 4 hangs up before it connects
			time.AfterFunc(lateConnection, cmd.port.close)
		} else {
			cmd.port.close()
		}
	})
}

// lookAhead looks, while a transfer is under way, at the lines that have come behind it. ABOR takes effect at once, and
// is answered in its turn: clients send NOOP to keep the connection alive during a transfer, and ABOR must not wait
// behind that. Behind another transfer it must: it is that one which it aborts. STAT without an argument is answered at once, if it
// comes first (RFC 959 section 4.1.3).
func (c *Conn) lookAhead(transfer *Command, within time.Duration) {
	for {
		line, ok := c.in.peek()
		if !ok {
			break
		}
		cmd, _ := parse(line, false)
		if !cmd.Is("STAT") || cmd.trimmed() != "" {
			break
		}
		c.in.next()
		c.answer(statSession(c, cmd))
	}
	c.in.lookAhead(func(line []byte) bool {
		cmd, _ := parse(line, len(line) > c.in.limit)
		switch {
		case cmd == nil:
		case c.server.verbs[cmd.Verb].is(transfers):
			return false
		case cmd.Verb == "ABOR":
			transfer.Abort(ErrAborted)
		case cmd.Verb == "QUIT":
			transfer.quits(within)
		}
		return true
	})
}

// CatchUp waits until Read has looked at what has arrived, so that the transfer under way was told of an ABOR or QUIT among
// it; d at most.
func (c *Conn) CatchUp(d time.Duration) {
	received := c.wire.received()
	for until := time.Now().Add(d); c.looked.Load() < received && time.Now().Before(until); {
		time.Sleep(100 * time.Microsecond)
	}
}
