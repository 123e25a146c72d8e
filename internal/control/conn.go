package control

import (
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// Conn is one control connection, as ftpserverlib sees it: Read gives it whole lines, Write takes whole lines. Read and
// Close are for one goroutine, the library's reader, which also executes all commands but transfers; everything else is
// safe to use from any goroutine.
//
// The fields above mu belong to that goroutine, or never change.
type Conn struct {
	*wire
	id      uint64
	server  *Server
	handler Handler
	addr    Addr
	client  netip.Addr // the client's
	local   netip.Addr // the server's, as the client knows it
	since   time.Time

	in    input
	rest  []byte // what Read still has to hand out
	after *verb  // what the library has got last

	looked atomic.Uint64 // how much of what the wire got Read had looked at when it last began to wait

	mu         sync.Mutex
	stream     net.Conn    // wire, or a *tls.Conn over it
	tls        *tls.Config // of the connection; nil: it is not encrypted
	current    *Command    // the command that the library executes; nil: the next one may begin
	phase      phase
	user       string // the account
	dialogue   dialogue
	order      *order // how the connection is to be ended, for Read to find
	woken      bool   // the read deadline was set to the past
	shaking    bool   // the TLS handshake may be under way: nothing was read behind it yet
	lastActive time.Time
	spared     time.Time  // not idle before that, see Handler.IdleFor
	unheard    []delivery // of the replies since the last line came
}

// phase is how far a connection has come.
type phase uint8

const (
	greeted phase = iota // only what anybody may say reaches the library
	loggedIn
	ended
)

// dialogue is what the client has said about the commands to come.
type dialogue struct {
	ascii   bool // TYPE A (RFC 959 section 3.1.1); the default
	private bool // PROT P
	epsvAll bool // RFC 2428 section 4
	named   bool // USER was said for the next PASS
	sized   bool // PBSZ was said
	facts   []string
	hash    string // the digest of HASH

	prepared bool  // PASV, EPSV, PORT or EPRT was said for the next transfer
	port     *Port // the passive port that it was told of; nil: none
}

func newDialogue() dialogue { return dialogue{ascii: true, facts: factNames, hash: hashNames[0]} }

func newConn(s *Server, nc net.Conn, id uint64, implicit *tls.Config) *Conn {
	c := &Conn{
		wire:     newWire(nc, s.writeTimeout),
		id:       id,
		server:   s,
		client:   ipOf(nc.RemoteAddr()),
		local:    ipOf(nc.LocalAddr()),
		since:    time.Now(),
		in:       input{limit: maxLine},
		dialogue: newDialogue(),
	}
	c.lastActive = c.since
	c.addr = Addr{Addr: nc.RemoteAddr(), Conn: c}
	c.stream = c.wire
	if implicit != nil {
		c.tls = s.controlTLS(implicit)
		c.stream, c.shaking = tls.Server(c.wire, c.tls), true
	}
	c.handler = s.opts.NewHandler(c)
	return c
}

// ID tells the connection from the others of its Server. The first one has 1.
func (c *Conn) ID() uint64 { return c.id }

// IP returns the client's address.
func (c *Conn) IP() netip.Addr { return c.client }

// Handler returns the handler of the connection.
func (c *Conn) Handler() Handler { return c.handler }

// Command returns the command that the library executes. If there is none it is one without a verb, whose words nobody hears.
func (c *Conn) Command() *Command {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current == nil {
		return &Command{conn: c}
	}
	return c.current
}

// ASCII reports whether transfers are of TYPE A.
func (c *Conn) ASCII() bool { return c.said().ascii }

// Facts returns which facts MLSD and MLST are to show.
func (c *Conn) Facts() []string { return c.said().facts }

// DataConnection says why there may not be a data connection; the zero Reply: there may. The driver asks it for a transfer,
// so that the library hears of the transfer, too: it forgets REST then.
func (c *Conn) DataConnection() Reply {
	d := c.said()
	switch {
	case !d.prepared:
		return Reply{Code: 425, Text: "use PASV, EPSV, PORT or EPRT first"}
	case c.server.opts.Policy().TLSRequired && !d.private:
		return Reply{Code: 522, Text: "data connections must be encrypted: PROT P first"} // RFC 4217 section 9
	}
	return Reply{}
}

func (c *Conn) said() dialogue {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dialogue
}

// change runs f on what the client has said, with the mutex held.
func (c *Conn) change(f func(*dialogue)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.dialogue)
}

// LogIn says that the client has logged in with an account; it is for the goroutine that executes commands. Before, only
// the commands that anybody may say reach the library.
func (c *Conn) LogIn(account string) {
	c.server.settle(c)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase != ended {
		c.phase, c.user = loggedIn, account
	}
}

// account is the one that the client has logged in with.
func (c *Conn) account() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.user
}

func (c *Conn) isLoggedIn() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.phase == loggedIn
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

// Read gives the library its next command line. The call means that the library is done with the line before, or
// executes it on another goroutine. Commands that are answered here are executed meanwhile. It returns io.EOF when the
// connection is over, and no other error.
func (c *Conn) Read(p []byte) (int, error) {
	if len(c.rest) == 0 && !c.next() {
		return 0, io.EOF
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// next gets a line for the library into c.rest. It reports false if the connection is over.
func (c *Conn) next() bool {
	if cmd, _ := c.state(); cmd != nil && !cmd.Transfers() {
		c.finish(cmd)
	}
	for {
		cmd, o := c.state()
		if o != nil && !(o.drains && cmd.Transfers()) {
			c.conclude(*o)
			return false
		}
		if cmd.Transfers() {
			c.lookAhead(cmd, promptConnection)
		} else if line, tooLong, ok := c.in.next(); ok {
			if c.dispatch(line, tooLong) {
				return true
			}
			continue
		}
		c.fill()
	}
}

// dispatch acts on a line. It reports whether the library is to execute it; then it is in c.rest.
func (c *Conn) dispatch(line []byte, tooLong bool) (pass bool) {
	defer func() { // a bug that one client has found ends nobody else's connection
		if r := recover(); r != nil {
			c.server.opts.Logger.Error("a command failed in an unforeseen way", "panic", r, "stack", string(debug.Stack()))
			c.answer(internalError)
		}
	}()
	c.touch()
	cmd, fault := parse(line, tooLong)
	if cmd == nil {
		if fault.Code != 0 {
			c.answer(fault)
		}
		return false
	}
	cmd.conn, cmd.verb, cmd.pass = c, c.server.verbs[cmd.Verb], cmd.Line
	c.handler.Begin(cmd)
	if r := c.judge(cmd); r.Code != 0 {
		c.answer(r)
		if r.Code == 234 {
			c.startTLS()
		}
		c.handler.End(cmd)
		return false
	}
	if cmd.Transfers() {
		cmd.done, cmd.held = make(chan struct{}), 1
		c.keepPort()
	}
	c.mu.Lock()
	c.current = cmd
	c.mu.Unlock()
	if cmd.Transfers() { // before the library begins it: a QUIT may have come together with it
		c.lookAhead(cmd, lateConnection)
	}
	c.after = cmd.verb
	c.rest = append(append(c.rest, cmd.pass...), "\r\n"...) // it is empty
	return true
}

// judge returns the reply of a command that is answered here. It prepares cmd.pass for the library otherwise.
func (c *Conn) judge(cmd *Command) Reply {
	v := cmd.verb
	switch {
	case v == nil:
		return Reply{Code: 500, Text: Quoted(cmd.Verb) + " is not a command of this server"}
	case !v.is(open) && !c.isLoggedIn():
		return notLoggedIn
	case v.is(argument) && cmd.trimmed() == "":
		return Reply{Code: 501, Text: cmd.Verb + " needs an argument: " + v.usage}
	case v.prepare == nil:
		return Reply{}
	}
	return v.prepare(c, cmd)
}

// startTLS puts TLS over the wire (RFC 4217 section 4.1). What the client, or somebody on the way, sent in the clear behind
// the command is not acted on (the flaw of CVE-2011-0411).
func (c *Conn) startTLS() {
	c.in = input{limit: c.in.limit}
	config := c.server.controlTLS(c.server.opts.TLS)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tls, c.stream, c.shaking = config, tls.Server(c.wire, config), true
	c.woken = c.order != nil // a late Wake must not interrupt the handshake
}

// isTLS reports whether the connection is encrypted.
func (c *Conn) isTLS() bool {
	_, ok := c.transport().(*tls.Conn)
	return ok
}

// handshakes reports whether the TLS handshake is not over. Reading, or writing the greeting, does it.
func (c *Conn) handshakes() bool {
	t, ok := c.transport().(*tls.Conn)
	return ok && !t.ConnectionState().HandshakeComplete
}

// transport is what to read and write.
func (c *Conn) transport() net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stream
}

// finish ends the command that the library has executed.
func (c *Conn) finish(cmd *Command) {
	if cmd.verb.after != nil {
		cmd.verb.after(c, cmd)
	}
	switch {
	case cmd.opened:
		c.unprepare()
	case cmd.Transfers():
		c.resumePort()
	}
	if cmd.Transfers() || cmd.code == 0 { // it has no reply
		c.handler.End(cmd)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current = nil
	c.lastActive = time.Now()
	if cmd.done != nil {
		close(cmd.done)
		c.wakeLocked()
	}
}

// lookAhead looks, while a transfer is under way, at the lines that have come behind it. ABOR takes effect at once, and
// is answered in its turn: clients send NOOP to keep the connection alive during a transfer, and ABOR must not wait
// behind that. Behind another transfer it must: it is that one which it aborts.
// A QUIT that comes before the data connection is an orderly end, and the client has so long to connect.
func (c *Conn) lookAhead(transfer *Command, within time.Duration) {
	for c.answerStat() {
	}
	c.in.lookAhead(func(line []byte) bool {
		cmd, _ := parse(line, len(line) > c.in.limit)
		switch {
		case cmd == nil:
		case c.server.verbs[cmd.Verb].is(transfers):
			return false
		case cmd.Verb == "ABOR":
			transfer.interrupt(Aborted)
			c.closePort()
		case cmd.Verb == "QUIT" && transfer.quit():
			time.AfterFunc(within, func() {
				if within < lateConnection && c.wire.hungUp() { // PHP 4 hangs up before it connects
					time.AfterFunc(lateConnection, c.closePort)
				} else {
					c.closePort()
				}
			})
		case cmd.Verb == "QUIT":
			transfer.interrupt(Quitting)
		}
		return true
	})
}

// How long a client that has said QUIT behind a transfer may take to connect to its passive port.
const (
	promptConnection = 10 * time.Millisecond // it waits for the reply to its QUIT
	lateConnection   = 5 * time.Second       // the QUIT came together with the transfer, or the client has hung up
)

// answerStat answers the next line, while a transfer is under way, if that is STAT without an argument (RFC 959 section
// 4.1.3). It reports whether it was.
func (c *Conn) answerStat() bool {
	line, ok := c.in.peek()
	if !ok {
		return false
	}
	cmd, _ := parse(line, false)
	if !cmd.Is("STAT") || cmd.trimmed() != "" {
		return false
	}
	c.in.next()
	c.touch()
	c.answer(statSession(c, cmd))
	return true
}
