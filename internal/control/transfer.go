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

// dataUse is the part of a Command that uses a data connection. Conn.mu guards stage, cause, socket, quitEarly and quitLate. The other fields
// belong to the goroutine that executes the transfer, or never change.
type dataUse struct {
	port        *Port         // the passive port of its client; nil: none
	done        chan struct{} // closed when the transfer has ended; nil: the command is no transfer
	whenAborted chan struct{} // closed when the transfer is aborted
	stage       stage
	cause       error    // of aborted
	socket      net.Conn // of moving, below TLS
	quitEarly   bool     // QUIT came before the 1xx: the client may hang up, and the transfer continues
	quitLate    bool     // QUIT came after the 1xx

	opened   bool // the driver has opened its file
	open     bool // and has not closed it yet
	answered bool // the library sent its final reply before the file was closed
}

// begin makes the command a transfer.
func (cmd *Command) begin(port *Port) {
	cmd.port, cmd.done, cmd.whenAborted = port, make(chan struct{}), make(chan struct{})
	port.keep()
}

// Transfers reports whether the command uses a data connection.
func (cmd *Command) Transfers() bool { return cmd != nil && cmd.verb.is(usesData) }

// Opened records that the driver has opened the file. The transfer then ends, and its final reply is sent, only after Closed: the
// library sends 425 before it closes its handle (handle_files.go:108). A transfer that the driver refuses opens no file, and its
// passive port stays open.
func (cmd *Command) Opened() { cmd.opened, cmd.open = true, true }

// Closed records that the driver has closed the file. Call Reply with the final reply before.
func (cmd *Command) Closed() {
	cmd.open = false
	if cmd.answered {
		cmd.conn.complete(cmd)
	}
}

// Connected records the data connection, below TLS, before bytes move. It returns the cause if the transfer was aborted.
func (cmd *Command) Connected(socket net.Conn) error {
	c := cmd.conn
	c.mu.Lock()
	if cmd.stage < moving {
		cmd.stage, cmd.socket = moving, socket
	}
	cause := cmd.cause
	c.mu.Unlock()
	if c.inputWaits.Load() {
		c.interruptRead(true) // STAT may wait for the 1xx
	}
	return cause
}

// moves reports whether bytes move: the 1xx was sent.
func (cmd *Command) moves() bool {
	cmd.conn.mu.Lock()
	defer cmd.conn.mu.Unlock()
	return cmd.stage == moving
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
	close(cmd.whenAborted)
}

// Aborted returns a channel that is closed when the transfer is aborted, for a transfer that waits before it opens its file.
func (cmd *Command) Aborted() <-chan struct{} { return cmd.whenAborted }

// Cause returns why the transfer was aborted, or nil if it was not.
func (cmd *Command) Cause() error {
	cmd.conn.mu.Lock()
	defer cmd.conn.mu.Unlock()
	return cmd.cause
}

// Seal fixes the outcome of the transfer, so that Abort has no effect any more, or returns why the transfer was aborted. A QUIT after the
// 1xx is ErrQuit: the client may have been killed, so that bytes are missing.
func (cmd *Command) Seal() error { return cmd.seal(false) }

// SealComplete is Seal for a transfer that certainly has all bytes. An early QUIT of the client does not abort it.
func (cmd *Command) SealComplete() error { return cmd.seal(true) }

func (cmd *Command) seal(complete bool) error {
	cmd.conn.mu.Lock()
	defer cmd.conn.mu.Unlock()
	switch {
	case cmd.stage == aborted:
		return cmd.cause
	case cmd.quitLate && !complete:
		return ErrQuit
	}
	cmd.stage = sealed
	return nil
}

// hasQuitEarly reports whether the client sent QUIT before the 1xx: it may hang up, and the transfer continues.
func (cmd *Command) hasQuitEarly() bool {
	if !cmd.Transfers() {
		return false
	}
	cmd.conn.mu.Lock()
	defer cmd.conn.mu.Unlock()
	return cmd.quitEarly
}

// announce records that the 1xx is sent.
func (cmd *Command) announce() {
	cmd.conn.mu.Lock()
	defer cmd.conn.mu.Unlock()
	cmd.stage = max(cmd.stage, announced)
}

// promptConnection is how long a client that has sent QUIT after a transfer, and waits for the reply, may take to connect to its passive
// port. If the QUIT came with the transfer, or the client has hung up, that is Server.lateTimeout.
const promptConnection = 10 * time.Millisecond

// recordQuit acts on a QUIT after the transfer. A QUIT before the 1xx is an orderly end: the transfer continues if the client connects in
// time.
func (cmd *Command) recordQuit(within time.Duration) {
	c := cmd.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if cmd.stage >= announced {
		cmd.quitLate = true
		return
	}
	cmd.quitEarly = true
	time.AfterFunc(within, func() {
		if late := c.server.lateTimeout; within < late && c.wire.hungUp() { // PHP 4 hangs up before it connects
			time.AfterFunc(late, cmd.port.close)
		} else {
			cmd.port.close()
		}
	})
}

// lookAhead examines the lines that arrived during a transfer. ABOR takes effect at once, and is answered in its turn: clients send
// NOOP to keep the connection alive, and ABOR must not wait for these. An ABOR after another pipelined transfer is for that one. A
// STAT without a path that comes first is answered once bytes move (RFC 959 section 4.1.3).
func (c *Conn) lookAhead(transfer *Command, within time.Duration) {
	for transfer.moves() {
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
		case c.server.verbs[cmd.Verb].is(usesData):
			return false
		case cmd.Verb == "ABOR":
			transfer.Abort(ErrAborted)
		case cmd.Verb == "QUIT":
			transfer.recordQuit(within)
		}
		return true
	})
}

// CatchUp waits until Read has examined all input that has arrived, so that an ABOR or QUIT in it has taken effect, but at most for d.
func (c *Conn) CatchUp(d time.Duration) {
	received := c.wire.bytesArrived()
	for until := time.Now().Add(d); c.examined.Load() < received && time.Now().Before(until); {
		time.Sleep(100 * time.Microsecond)
	}
}
