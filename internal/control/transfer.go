package control

import (
	"errors"
	"net"
	"time"
)

// The causes for which a client, or the server, aborts a transfer.
var (
	ErrAborted = errors.New("aborted by ABOR")
	ErrQuit    = errors.New("QUIT came before the upload was complete")
	ErrHungUp  = errors.New("the client hung up before the transfer was confirmed")
	ErrStopped = errors.New("the server ended the session")
)

// stage is the progress of a transfer. It only grows.
type stage uint8

const (
	awaiting  stage = iota // its data connection
	announced              // its 1xx was sent
	moving                 // bytes
	sealed                 // its outcome is fixed: it can no longer be aborted
	aborted                // cause has the reason
)

// transfer is the state of a Command that uses a data connection. Conn.mu guards stage, cause, socket, left, quit and over.
// The other fields belong to the goroutine that executes the transfer, or never change.
type transfer struct {
	port    *Port         // the passive port of its client; nil: none
	done    chan struct{} // closed when it has ended; nil: the command is no transfer
	stage   stage
	cause   error         // of aborted
	socket  net.Conn      // of moving, below TLS
	left    bool          // QUIT came before the 1xx: the client may hang up, and the transfer continues
	quit    bool          // QUIT came after the 1xx
	opened  bool          // the driver has opened its file
	open    bool          // and has not closed it yet
	pending *Reply        // the final reply, which waits until the file is closed
	over    chan struct{} // closed when it is aborted; nil: nothing waits for it
}

// Transfers reports whether the command uses a data connection.
func (cmd *Command) Transfers() bool { return cmd != nil && cmd.verb.is(transfers) }

// Opened notes that the driver has opened the file. The transfer then ends, and its final reply is sent, after Closed only: the
// library sends 425 before it closes its handle (handle_files.go:108). A refused transfer is never opened, and its passive port
// stays open.
func (cmd *Command) Opened() { cmd.opened, cmd.open = true, true }

// Closed notes that the driver has closed the file. Call Say with the final reply before.
func (cmd *Command) Closed() {
	cmd.open = false
	if r := cmd.pending; r != nil {
		cmd.conn.complete(cmd, *r)
	}
}

// Connected notes the data connection, below TLS, before bytes move. It returns the cause if the transfer was aborted.
func (cmd *Command) Connected(socket net.Conn) error {
	cmd.conn.mu.Lock()
	defer cmd.conn.mu.Unlock()
	if cmd.stage < moving {
		cmd.stage, cmd.socket = moving, socket
	}
	return cmd.cause
}

// Abort ends the transfer unless it was sealed or aborted before: the first cause counts. It closes the data connection below TLS,
// because TLS would wait five seconds for a client that does not read.
func (cmd *Command) Abort(cause error) {
	cmd.conn.mu.Lock()
	defer cmd.conn.mu.Unlock()
	switch cmd.stage {
	case awaiting, announced:
		cmd.port.close()
	case moving:
		_ = cmd.socket.Close()
	default:
		return
	}
	cmd.stage, cmd.cause = aborted, cause
	if cmd.over != nil {
		close(cmd.over)
	}
}

// Aborted returns a channel that is closed when the transfer is aborted, for a transfer that waits before it opens its file.
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

// Cause returns why the transfer was aborted, or nil if it was not.
func (cmd *Command) Cause() error {
	cmd.conn.mu.Lock()
	defer cmd.conn.mu.Unlock()
	return cmd.cause
}

// Seal fixes the outcome of the transfer, so that Abort does nothing any more, or returns why the transfer was aborted. After a QUIT
// the caller must have proof that no byte is missing.
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

// hasLeft reports whether the client sent QUIT before the 1xx: it may hang up, and the transfer continues.
func (cmd *Command) hasLeft() bool {
	if cmd == nil {
		return false
	}
	cmd.conn.mu.Lock()
	defer cmd.conn.mu.Unlock()
	return cmd.left
}

// How long a client that has sent QUIT after a transfer may take to connect to its passive port.
const (
	promptConnection = 10 * time.Millisecond // it waits for the reply to its QUIT
	lateConnection   = 5 * time.Second       // the QUIT came with the transfer, or the client has hung up
)

// announce notes that the 1xx is sent.
func (cmd *Command) announce() {
	cmd.conn.mu.Lock()
	defer cmd.conn.mu.Unlock()
	cmd.stage = max(cmd.stage, announced)
}

// quits acts on a QUIT that follows the transfer. A QUIT before the 1xx is an orderly end: the transfer continues if the client
// connects in time.
func (cmd *Command) quits(within time.Duration) {
	c := cmd.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if cmd.stage >= announced {
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

// lookAhead examines the lines that arrived during a transfer. ABOR takes effect at once, and is answered in its turn: clients send
// NOOP to keep the connection alive, and ABOR must not wait for these. An ABOR after another pipelined transfer is for that one. A STAT
// without a path that comes first is answered at once (RFC 959 section 4.1.3).
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
		c.answer(c.sessionStatus())
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

// CatchUp waits until Read has examined all input that has arrived, so that an ABOR or QUIT in it has taken effect. It waits for d
// at most.
func (c *Conn) CatchUp(d time.Duration) {
	received := c.wire.received()
	for until := time.Now().Add(d); c.looked.Load() < received && time.Now().Before(until); {
		time.Sleep(100 * time.Microsecond)
	}
}
