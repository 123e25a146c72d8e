package control

import (
	"crypto/tls"
	"time"
)

// Handler decides what becomes of each command of one connection.
//
// Command, Urgent and IdleFor are called from within Conn.Read by one goroutine, in the
// order of the lines, never two at a time and never after Ended.
type Handler interface {
	// Command is called with each complete command when it is its turn: all before it
	// are answered and nothing runs. Two exceptions: ABOR and what Urgent
	// names come while something runs (see Run) and must be answered, or end the connection; and ABOR overtakes commands
	// that wait for that. The reply to such an ABOR is sent when it has its turn: behind the transfer's.
	Command(c *Conn, cmd Command) Decision
	// Reply sees each line that the library writes, before it is sent, without its end;
	// code is what it begins with, or 0. It may return another line to
	// send instead, likewise without its end (nil: the line as it is), or drop it.
	// line is valid only during the call. Not called for what the Handler answers.
	Reply(c *Conn, code int, line []byte) (instead []byte, drop bool)
	// Ended is called exactly once, when the connection is over, with the reason, and
	// before the library's Read returns io.EOF. Usually from within Read; from within
	// Close if the library (QUIT, a refused login) or the driver closes the connection.
	// It is the moment to abort data connections.
	Ended(c *Conn, why Reason)
}

// Urgenter is for a Handler that answers more than ABOR while a transfer runs, such as
// STAT without a parameter (RFC 959 section 4.1.3).
type Urgenter interface {
	// Urgent reports whether the command, the next one, is to have its turn although a
	// transfer is outstanding.
	Urgent(c *Conn, cmd Command) bool
}

// Idler is for a Handler that has a say in the idle timeout.
type Idler interface {
	// IdleFor is called when no command came for Options.IdleTimeout, no transfer runs
	// and no command waits. The connection is left alone for so long, and then it is
	// asked again; 0 or less ends it.
	IdleFor(c *Conn) time.Duration
}

// Waiter is a command that waits, such as MKD of a held lock. Its methods are called
// from within Conn.Read by one goroutine. Whoever makes it ready calls Conn.Wake then.
type Waiter interface {
	// Poll returns the reply if the waiting is over. It is called at first, after each
	// Conn.Wake and perhaps in between. It must not block, and is not called again after true.
	Poll() (Reply, bool)
	// Withdraw ends the waiting, if it is not over yet, and returns the reply. It is
	// called instead of a true Poll, once, when a line arrives or the connection ends.
	// If the connection ended then the reply's Undelivered is called instead of sending it.
	Withdraw() Reply
}

// Decision is what becomes of a command. The zero Decision answers 502.
type Decision struct {
	kind   decisionKind
	reply  Reply
	line   string
	waiter Waiter
	work   func() Reply
	config *tls.Config
}

type decisionKind uint8

const (
	decideNothing decisionKind = iota
	decideAnswer
	decidePass
	decideRun
	decideWait
	decideTLS
	decideClose
)

// Answer replies; the library never sees the command.
func Answer(r Reply) Decision { return Decision{kind: decideAnswer, reply: r} }

// Pass hands the line, without its end, to the library: Command.Line or another one. At most
// MaxPass bytes, else the client is told 500. The library must have answered it when it reads on, so it must not be a
// transfer.
func Pass(line string) Decision { return Decision{kind: decidePass, line: line} }

// Run lets the command go on on a goroutine of its own, as a transfer does, and answers with what work returns. Until then the
// connection is read on, but only ABOR and what Urgent names have their turn. work may say more before, with Conn.Say. It
// must return soon after Handler.Ended: the connection counts as one of the listener's until it has.
func Run(work func() Reply) Decision { return Decision{kind: decideRun, work: work} }

// Wait lets the command wait.
func Wait(w Waiter) Decision { return Decision{kind: decideWait, waiter: w} }

// StartTLS replies in the clear (234, RFC 4217 section 4) and then does the handshake. Lines that
// came in the clear behind the command are thrown away (the flaw of CVE-2011-0411).
func StartTLS(r Reply, config *tls.Config) Decision {
	return Decision{kind: decideTLS, reply: r, config: config}
}

// Close replies and ends the connection.
func Close(r Reply) Decision { return Decision{kind: decideClose, reply: r} }

// MaxPass is how many bytes a passed line may have: the library's buffer holds 4,096
// with the line end, and it drops the connection without a word when that is too small.
const MaxPass = 4096 - len("\r\n")

// Reason says why a connection ended.
type Reason uint8

// The reasons.
const (
	ReasonClosed   Reason = iota // by the Handler, the driver or the library
	ReasonQuit                   // QUIT
	ReasonEOF                    // the client closed it
	ReasonReset                  // reset, or given up by TCP
	ReasonIdle                   // no command for too long
	ReasonSlow                   // it did not read its replies for Options.WriteTimeout
	ReasonTLS                    // the TLS handshake failed
	ReasonKicked                 // Conn.Kick
	ReasonShutdown               // Listener.Shutdown
)

// String returns a few words for logs.
func (r Reason) String() string {
	switch r {
	case ReasonClosed:
		return "closed by the server"
	case ReasonQuit:
		return "quit"
	case ReasonEOF:
		return "closed by the client"
	case ReasonReset:
		return "reset"
	case ReasonIdle:
		return "idle for too long"
	case ReasonSlow:
		return "did not read its replies"
	case ReasonTLS:
		return "tls handshake failed"
	case ReasonKicked:
		return "kicked"
	case ReasonShutdown:
		return "server stops"
	}
	return "unknown"
}
