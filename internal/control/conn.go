package control

import (
	"crypto/tls"
	"io"
	"net"
	"runtime/debug"
	"sync"
	"time"
)

// Conn is one control connection, as ftpserverlib sees it: Read gives it whole lines, Write takes whole lines. Read is
// for one goroutine, the library's reader, which also executes all commands but transfers; everything else is safe to use
// from any goroutine.
//
// The fields above mu belong to that goroutine, or never change.
type Conn struct {
	id       uint64
	listener *Listener
	opts     *Options
	handler  Handler
	wire     *wire
	addr     net.Addr // an Addr
	over     chan struct{}

	in       input
	rest     []byte // what Read still has to hand out
	restBuf  []byte // the memory of rest
	reply    []byte // the memory of answers
	after    *verb  // what the library has executed last
	quitting bool   // the input has ended behind a QUIT: nothing is read any more
	deadline time.Time
	idleTime time.Duration // idleLimit, as Read knows it

	told sync.Once // around Handler.Ended
	seen sync.Once // around close(over)
	done sync.Once // around Close

	mu         sync.Mutex
	stream     net.Conn     // wire, or a *tls.Conn over it
	handshake  func() error // of implicit TLS; nil: none is needed
	state      state
	current    *Command // the command that the library executes; nil in stateReady
	login      loginState
	dialogue   dialogue
	multiline  multiline
	end        Reason // notEnded at first
	ordered    order
	reader     readerState
	looked     uint64 // how much of what was read Read had looked at when it last began to wait
	lastActive time.Time
	idleLimit  time.Duration
	unheard    []func() // Command.Lost of the replies since the last line came
}

// state is who has the word.
type state uint8

const (
	stateReady    state = iota // nobody: the next command may begin
	stateCommand               // the library executes a command on the goroutine that reads
	stateTransfer              // the library executes a command with a data connection on another goroutine
)

// loginState is how far the client is with its login.
type loginState uint8

const (
	loggedOut loginState = iota
	userNamed            // USER was said
	loggedIn
)

// readerState says what the goroutine in Read is doing, for those who have something for it.
type readerState uint8

const (
	readerBusy    readerState = iota // it will look around before it waits
	readerCalled                     // likewise, and it is to look around again
	readerWaiting                    // it waits for the socket
	readerWoken                      // it waited, and its read deadline was set to the past
)

// dialogue is what the client has said about the commands to come.
type dialogue struct {
	ascii   bool // TYPE A (RFC 959 section 3.1.1); the default
	pbsz    bool // RFC 4217 section 8
	private bool // PROT P
	epsvAll bool // RFC 2428 section 4
	renames bool // RNFR was said
	data    dataState
	port    *Port // the passive port that it was told of; nil: none
	facts   Facts
	hash    string // the algorithm of HASH
}

// dataState is what is prepared for the next transfer.
type dataState uint8

const (
	dataNone dataState = iota
	dataPassive
	dataActive
)

func newDialogue() dialogue { return dialogue{ascii: true, facts: allFacts, hash: "SHA-256"} }

func newConn(l *Listener, nc net.Conn, id uint64, implicit *tls.Config) *Conn {
	c := &Conn{
		id:        id,
		listener:  l,
		opts:      &l.opts,
		wire:      newWire(nc, l.opts.WriteTimeout),
		over:      make(chan struct{}),
		in:        input{limit: l.opts.MaxLine},
		dialogue:  newDialogue(),
		idleTime:  l.opts.IdleTimeout,
		idleLimit: l.opts.IdleTimeout,
	}
	c.addr = Addr{Addr: nc.RemoteAddr(), Conn: c}
	c.stream = c.wire
	if implicit != nil {
		t := tls.Server(c.wire, implicit)
		c.stream, c.handshake = t, sync.OnceValue(func() error { return c.shake(t) })
	}
	return c
}

// start gives the connection its handler and starts the idle clock.
func (c *Conn) start(h Handler) {
	c.mu.Lock()
	c.handler = h // Conns may have shown c to others already
	c.lastActive = time.Now()
	c.mu.Unlock()
	c.armIdle(time.Now().Add(c.idleTime))
}

// ID tells the connection from the others of its Listener. The first one has 1.
func (c *Conn) ID() uint64 { return c.id }

// Handler returns the handler of the connection; nil while NewHandler runs.
func (c *Conn) Handler() Handler {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.handler
}

// Command returns the command that the library executes, or nil.
func (c *Conn) Command() *Command {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current
}

// ASCII reports whether transfers are of TYPE A.
func (c *Conn) ASCII() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dialogue.ascii
}

// Facts returns which facts MLSD and MLST are to show.
func (c *Conn) Facts() Facts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dialogue.facts
}

// DataConnection says why there cannot be a data connection; the zero Reply: there can. The driver asks it for a transfer,
// so that the library hears of the transfer, too: it forgets REST then.
func (c *Conn) DataConnection() Reply {
	d := c.said()
	switch {
	case d.data == dataNone:
		return Reply{Code: 425, Text: "use PASV, EPSV, PORT or EPRT first"}
	case c.opts.Policy().TLSRequired && !d.private:
		return Reply{Code: 522, Text: "data connections must be encrypted: PBSZ 0 and PROT P first"} // RFC 4217 section 9
	}
	return Reply{}
}

// LogIn says that the client has logged in. Before, only the commands that anybody may say reach the library.
func (c *Conn) LogIn() { c.setLogin(loggedIn) }

func (c *Conn) setLogin(s loginState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.login = s
}

// Addr is the client's address. Its String is the plain address, which the library parses. It leads from the
// library's ClientContext back to the connection.
type Addr struct {
	net.Addr
	Conn *Conn
}

// FromAddr returns the connection that an address returned by RemoteAddr belongs to.
func FromAddr(a net.Addr) (*Conn, bool) {
	addr, ok := a.(Addr)
	return addr.Conn, ok
}

// RemoteAddr returns the client's address, an [Addr].
func (c *Conn) RemoteAddr() net.Addr { return c.addr }

// LocalAddr returns the server's address.
func (c *Conn) LocalAddr() net.Addr { return c.wire.LocalAddr() }

// SetDeadline does nothing: a deadline for both directions would lose replies whose effect stands. See
// Options.IdleTimeout.
func (c *Conn) SetDeadline(time.Time) error { return nil }

// SetReadDeadline does nothing, see SetDeadline.
func (c *Conn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing, see SetDeadline.
func (c *Conn) SetWriteDeadline(time.Time) error { return nil }

// Read gives the library its next command line. The call means that the library is done with the line before, or
// executes it on another goroutine. Commands that are answered here are executed meanwhile. It returns io.EOF when the
// connection is over, and no other error.
func (c *Conn) Read(p []byte) (int, error) {
	if len(c.rest) == 0 && !c.next() {
		c.ended(ReasonClosed) // if nobody has said why yet
		if cmd := c.Command(); cmd != nil {
			<-cmd.done // a transfer was told to end, and has a last reply
		}
		return 0, io.EOF
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// next gets a line for the library into c.rest. It reports false if the connection is over.
func (c *Conn) next() bool {
	if cmd := c.Command(); cmd != nil && !cmd.verb.is(transfers) {
		c.finish(cmd)
	}
	for {
		o := c.attend()
		transferring := c.transferring()
		switch {
		case c.isOver():
			return false
		case o.urgency == orderDrained && !transferring, o.urgency > orderDrained:
			c.obey(o)
			return false
		case transferring:
			c.lookAhead()
		default:
			if line, tooLong, ok := c.in.next(); ok {
				if c.dispatch(line, tooLong) {
					return true
				}
				continue
			}
		}
		if !c.fill() {
			return false
		}
	}
}

func (c *Conn) transferring() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state == stateTransfer
}

// dispatch acts on a line. It reports whether the library is to execute it; then it is in c.rest.
func (c *Conn) dispatch(line []byte, tooLong bool) (pass bool) {
	defer func() { // a bug that one client has found ends nobody else's connection
		if r := recover(); r != nil {
			c.opts.Logger.Error("a command failed in an unforeseen way", "panic", r, "stack", string(debug.Stack()))
			c.answer(internalError)
		}
	}()
	c.touch()
	cmd, fault := parse(line, tooLong)
	if fault.Code != 0 {
		c.answer(fault)
		return false
	}
	cmd.conn, cmd.verb, cmd.pass = c, c.listener.verbs[cmd.Verb], cmd.Line
	c.handler.Begin(cmd)
	if r, answered := c.judge(cmd); answered {
		if r.Code == 234 {
			c.startTLS(r, c.opts.TLS)
		} else {
			c.answer(r)
		}
		c.handler.End(cmd)
		return false
	}
	c.restBuf = c.restBuf[:0]
	if cmd.Verb == "ABOR" && c.after.is(transfers) {
		// The library waits for the goroutine of the transfer before it executes NOOP, but not before ABOR
		// (client_handler.go:612): both would write to one buffer.
		c.restBuf = append(c.restBuf, "NOOP\r\n"...)
		cmd.unsaid = 1
	}
	c.mu.Lock()
	c.current, c.state = cmd, stateCommand
	if cmd.verb.is(transfers) {
		c.state, cmd.done, cmd.held = stateTransfer, make(chan struct{}), 1
	}
	c.mu.Unlock()
	c.after = cmd.verb
	c.restBuf = append(append(c.restBuf, cmd.pass...), '\r', '\n')
	c.rest = c.restBuf
	return true
}

// judge says whether the command is answered here, and how. It prepares cmd.pass for the library otherwise.
func (c *Conn) judge(cmd *Command) (r Reply, answered bool) {
	v := cmd.verb
	switch {
	case v == nil:
		return Reply{Code: 500, Text: quoted(cmd.Verb) + " is not a command of this server"}, true
	case !v.is(open) && !c.isLoggedIn():
		return notLoggedIn, true
	case v.is(argument) && cmd.trimmed() == "":
		return Reply{Code: 501, Text: cmd.Verb + " needs an argument: " + v.usage}, true
	}
	if v.prepare != nil {
		if r := v.prepare(c, cmd); r.Code != 0 {
			return r, true
		}
	}
	if len(cmd.pass) > maxPass {
		return Reply{Code: 500, Text: "line too long"}, true
	}
	return Reply{}, false
}

func (c *Conn) isLoggedIn() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.login == loggedIn
}

// maxPass is how many bytes a line for the library may have: its buffer holds 4,096 with the line end, and it drops the
// connection without a word when that is too small.
const maxPass = 4096 - len("\r\n")

// finish ends the command that the library has executed.
func (c *Conn) finish(cmd *Command) {
	if cmd.verb.after != nil {
		cmd.verb.after(c, cmd)
	}
	if cmd.verb.is(transfers) {
		c.unprepare()
	}
	if cmd.verb.is(transfers) || cmd.code == 0 { // it has no reply
		c.handler.End(cmd)
	}
	c.mu.Lock()
	c.current, c.state = nil, stateReady
	c.lastActive = time.Now()
	if cmd.done != nil {
		close(cmd.done)
		c.wakeLocked()
	}
	c.mu.Unlock()
}

// lookAhead looks, while a transfer is under way, at the lines that have come behind it. ABOR takes effect at once, and
// is answered in its turn: clients send NOOP to keep the connection alive during a transfer, and ABOR must not wait
// behind that. Behind another transfer it must: it is that one which it aborts.
func (c *Conn) lookAhead() {
	for c.answerStat() {
	}
	transfer := c.Command()
	if transfer == nil { // it has just ended
		return
	}
	c.in.lookAhead(func(line []byte) bool {
		cmd, _ := parse(line, len(line) > c.in.limit)
		switch {
		case cmd == nil:
		case c.listener.verbs[cmd.Verb].is(transfers):
			return false
		case cmd.Verb == "ABOR":
			transfer.interrupt(Aborted)
			c.closePort()
		case cmd.Verb == "QUIT":
			transfer.interrupt(Quitting)
			c.hurryPort()
		}
		return true
	})
}

// answerStat answers the next line, while a transfer is under way, if that is STAT without an argument (RFC 959 section
// 4.1.3). It reports whether it was.
func (c *Conn) answerStat() bool {
	line, ok := c.in.peek()
	if !ok {
		return false
	}
	cmd, _ := parse(line, false)
	if cmd == nil || cmd.Verb != "STAT" || cmd.trimmed() != "" {
		return false
	}
	c.in.next()
	c.touch()
	c.answer(statSession(c, cmd))
	return true
}
