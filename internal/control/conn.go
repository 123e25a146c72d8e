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
// safe to use from any goroutine, unless its comment restricts it.
//
// The fields above current belong to the goroutine that executes commands, or never change. While a transfer is under way that is its
// goroutine, and the reader only reads ahead.
type Conn struct {
	*wire
	id      uint64
	server  *Server
	handler Handler
	addr    Addr
	client  netip.Addr // the client's
	local   netip.Addr // the server's, as the client knows it
	phase   phase
	user    string      // the account
	stream  net.Conn    // wire, or a *tls.Conn over it
	tls     *tls.Config // of the connection; nil: it is not encrypted
	dialogue

	// These belong to Read.
	in     input
	rest   []byte // what Read still has to hand out
	after  *verb  // what the library has got last
	armed  time.Time
	spared time.Time // not idle before that, see Handler.IdleFor

	current atomic.Pointer[Command] // that the library executes; nil: the next one may begin
	order   atomic.Pointer[order]   // how the connection is to be ended, for Read to find
	looked  atomic.Uint64           // how much of what the wire got Read had looked at when it last began to wait
	shaking atomic.Bool             // the TLS handshake may be under way: nothing was read behind it yet

	mu      sync.Mutex
	ended   bool
	woken   bool       // the read deadline was set to the past
	unheard []delivery // of the replies since the last line came
	settled bool       // Server.mu guards it: it counts as logged in
}

// phase is how far a connection has come.
type phase uint8

const (
	greeted phase = iota // only what anybody may say reaches the library
	loggedIn
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
		in:       input{limit: maxLine},
		dialogue: newDialogue(),
	}
	c.addr = Addr{Addr: nc.RemoteAddr(), Conn: c}
	c.stream = c.wire
	if implicit != nil {
		c.encrypt(implicit)
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
	if cmd := c.current.Load(); cmd != nil {
		return cmd
	}
	return &Command{conn: c}
}

// ASCII reports whether transfers are of TYPE A. It is for the goroutine that executes commands.
func (c *Conn) ASCII() bool { return c.ascii }

// Facts returns which facts MLSD and MLST are to show. It is for the goroutine that executes commands.
func (c *Conn) Facts() []string { return c.facts }

// DataConnection returns why there may not be a data connection; the zero Reply: there may. The driver calls it for a transfer,
// so that the library hears of the transfer, too: it forgets REST then.
func (c *Conn) DataConnection() Reply {
	switch {
	case !c.prepared:
		return Reply{Code: 425, Text: "use PASV, EPSV, PORT or EPRT first"}
	case c.server.opts.Policy().TLSRequired && !c.private:
		return Reply{Code: 522, Text: "data connections must be encrypted: PROT P first"} // RFC 4217 section 9
	}
	return Reply{}
}

// LogIn notes that the client has logged in with an account; it is for the goroutine that executes commands. Before, only
// the commands that anybody may say reach the library.
func (c *Conn) LogIn(account string) {
	c.server.settle(c)
	c.phase, c.user = loggedIn, account
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
	if cmd := c.current.Load(); cmd != nil && !cmd.Transfers() {
		c.finish(cmd)
	}
	for {
		transfer := c.current.Load()
		if o := c.order.Load(); o != nil && !(o.drains && transfer != nil) {
			c.conclude(*o)
			return false
		}
		if transfer != nil {
			c.lookAhead(transfer, promptConnection)
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
		if r.Code == 234 { // RFC 4217 section 4.1
			c.in = input{limit: c.in.limit} // what came in the clear behind AUTH is not acted on (the flaw of CVE-2011-0411)
			c.encrypt(c.server.opts.TLS)
		}
		c.handler.End(cmd)
		return false
	}
	if cmd.Transfers() {
		cmd.done, cmd.port = make(chan struct{}), c.port
		cmd.port.keep()
	}
	c.current.Store(cmd)
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
	case !v.is(open) && c.phase != loggedIn:
		return notLoggedIn
	case v.is(argument) && cmd.trimmed() == "":
		return Reply{Code: 501, Text: cmd.Verb + " needs an argument: " + v.usage}
	case v.prepare == nil:
		return Reply{}
	}
	return v.prepare(c, cmd)
}

// finish ends the command that the library has executed.
func (c *Conn) finish(cmd *Command) {
	switch {
	case cmd.opened:
		c.unprepare()
	case cmd.Transfers():
		cmd.port.resume()
	}
	if cmd.Transfers() || !cmd.replied {
		c.handler.End(cmd)
	}
	c.current.Store(nil)
	if cmd.Transfers() {
		close(cmd.done)
		c.wake(true)
	}
}

// encrypt puts TLS over the wire.
func (c *Conn) encrypt(config *tls.Config) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tls = c.server.controlTLS(config)
	c.stream = tls.Server(c.wire, c.tls)
	c.shaking.Store(true)
	c.woken, c.armed = c.order.Load() != nil, time.Time{} // a late Wake must not interrupt the handshake
}

// isTLS reports whether the connection is encrypted.
func (c *Conn) isTLS() bool { return c.tls != nil }

// handshakes reports whether the TLS handshake is not over. Reading, or writing the greeting, does it.
func (c *Conn) handshakes() bool {
	t, ok := c.stream.(*tls.Conn)
	return ok && !t.ConnectionState().HandshakeComplete
}
