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

// Conn is a control connection as ftpserverlib sees it: Read returns whole lines, Write accepts whole lines. Only the library's
// reader, which also executes all commands but transfers, may call Read and Close. Other methods may be called from any goroutine,
// unless their comments restrict it.
//
// The fields above current never change, or belong to the goroutine that executes commands. During a transfer that is the transfer's
// goroutine, and the reader only reads ahead.
type Conn struct {
	*wire
	id      uint64
	server  *Server
	handler Handler
	addr    Addr
	client  netip.Addr // of the client
	local   netip.Addr // of the server, to which the client connected
	phase   phase
	user    string      // the account
	stream  net.Conn    // wire, or a *tls.Conn over it
	tls     *tls.Config // nil: the connection is not encrypted
	dialogue

	// These belong to Read.
	in     input
	rest   []byte    // the rest of a line that Read returns next
	spared time.Time // the client is not idle before, see Handler.IdleFor

	current atomic.Pointer[Command] // under way; nil: the next one may begin
	order   atomic.Pointer[order]   // to end the connection; Read obeys it
	looked  atomic.Uint64           // how much of wire.got Read had examined when it last began to wait
	shaking atomic.Bool             // the TLS handshake may be under way

	concluded sync.Once

	mu      sync.Mutex
	armed   time.Time  // the read deadline; past: Read was woken; the zero Time: not known
	unheard []delivery // replies since the last line came

	counted *address // that the connection counts for; nil: none. Server.mu guards it and settled.
	settled bool     // the connection counts as logged in
}

// phase is the progress of a session.
type phase uint8

const (
	greeted phase = iota // only commands with the flag open reach the library
	loggedIn
)

// dialogue has the settings of the client for its next commands.
type dialogue struct {
	ascii   bool // TYPE A (RFC 959 section 3.1.1); the default
	private bool // PROT P
	epsvAll bool // RFC 2428 section 4
	named   bool // USER was sent for the next PASS
	sized   bool // PBSZ was sent
	facts   []string
	hash    string // the digest that HASH computes

	prepared bool  // PASV, EPSV, PORT or EPRT was sent for the next transfer
	port     *Port // the passive port; nil: none
}

func newConn(s *Server, nc net.Conn, id uint64, implicit *tls.Config) *Conn {
	c := &Conn{
		wire:     newWire(nc, s.writeTimeout),
		id:       id,
		server:   s,
		client:   ipOf(nc.RemoteAddr()),
		local:    ipOf(nc.LocalAddr()),
		in:       input{limit: maxLine},
		dialogue: dialogue{ascii: true, facts: factNames, hash: hashNames[0]},
	}
	c.addr = Addr{Addr: nc.RemoteAddr(), Conn: c}
	c.stream = c.wire
	if implicit != nil {
		c.encrypt(implicit)
	}
	c.handler = s.opts.NewHandler(c)
	return c
}

// ID returns the number of the connection. The first one of a Server has 1.
func (c *Conn) ID() uint64 { return c.id }

// IP returns the client's address.
func (c *Conn) IP() netip.Addr { return c.client }

// Handler returns the handler of the connection.
func (c *Conn) Handler() Handler { return c.handler }

// Command returns the command that the library executes. If there is none, it returns one without a verb, whose replies are dropped.
func (c *Conn) Command() *Command {
	if cmd := c.current.Load(); cmd != nil {
		return cmd
	}
	return &Command{conn: c}
}

// ASCII reports whether transfers are of TYPE A. Only the goroutine that executes commands may call it.
func (c *Conn) ASCII() bool { return c.ascii }

// Facts returns the facts that MLSD and MLST show. Only the goroutine that executes commands may call it.
func (c *Conn) Facts() []string { return c.facts }

// DataConnection returns the refusal of a data connection, or the zero Reply. The driver calls it, and not Read, so that the library
// begins the transfer, and forgets REST, in any case.
func (c *Conn) DataConnection() Reply {
	switch {
	case !c.prepared:
		return Reply{Code: 425, Text: "use PASV, EPSV, PORT or EPRT first"}
	case c.server.opts.Policy().TLSRequired && !c.private:
		return Reply{Code: 522, Text: "data connections must be encrypted: send PROT P first"} // RFC 4217 section 9
	}
	return Reply{}
}

// LogIn notes that the client has logged in with an account. Only the goroutine that executes commands may call it. Before, only
// commands with the flag open reach the library.
func (c *Conn) LogIn(account string) {
	c.server.settle(c)
	c.phase, c.user = loggedIn, account
}

// Addr is the client's address. Its String is the plain address, which the library parses. The driver finds the Conn of a
// ClientContext through it.
type Addr struct {
	net.Addr
	Conn *Conn
}

// FromAddr returns the connection whose RemoteAddr a is.
func FromAddr(a net.Addr) (*Conn, bool) {
	addr, ok := a.(Addr)
	return addr.Conn, ok
}

// RemoteAddr returns the client's address, an [Addr].
func (c *Conn) RemoteAddr() net.Addr { return c.addr }

// Read returns the next command line for the library. A call means that the library has executed the line before, or executes it on
// another goroutine. Read answers some commands itself. It returns io.EOF when the connection has ended, and no other error.
func (c *Conn) Read(p []byte) (int, error) {
	if len(c.rest) == 0 && !c.next() {
		return 0, io.EOF
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// next puts a line for the library into c.rest. It returns false if the connection has ended.
func (c *Conn) next() bool {
	if cmd := c.current.Load(); cmd != nil && !cmd.Transfers() {
		c.finish(cmd)
	}
	for {
		transfer := c.current.Load()
		if o := c.order.Load(); o != nil && !(o.drains && transfer != nil) {
			c.concluded.Do(func() { c.conclude(*o) })
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

// dispatch executes a line, or puts it into c.rest for the library and returns true.
func (c *Conn) dispatch(line []byte, tooLong bool) (pass bool) {
	defer func() { // one client's panic must not end the other sessions
		if r := recover(); r != nil {
			c.server.opts.Logger.Error("panic in a command", "panic", r, "stack", string(debug.Stack()))
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
			c.in = input{limit: c.in.limit} // drop input that came in the clear after AUTH (CVE-2011-0411)
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
	if cmd.Transfers() { // a QUIT may have come in the same packet
		c.lookAhead(cmd, lateConnection)
	}
	c.rest = append(append(c.rest, cmd.pass...), "\r\n"...) // it is empty
	return true
}

// judge returns the reply to a command that this package answers. Otherwise it prepares cmd.pass for the library.
func (c *Conn) judge(cmd *Command) Reply {
	v := cmd.verb
	switch {
	case v == nil:
		return Reply{Code: 500, Text: Quoted(cmd.Verb) + " is not a command of this server"}
	case !v.is(open) && c.phase != loggedIn:
		return notLoggedIn
	case v.is(argument) && cmd.trimmed() == "":
		return Reply{Code: 501, Text: cmd.Verb + " needs an argument: " + v.usage}
	}
	var r Reply
	if v.prepare != nil {
		r = v.prepare(c, cmd)
	}
	if len(cmd.pass) > maxLine && r.Code == 0 {
		return lineTooLong
	}
	return r
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
	if c.order.Load() == nil {
		c.armed = time.Time{} // a pending Wake must not interrupt the handshake
	}
}

// isTLS reports whether the connection is encrypted.
func (c *Conn) isTLS() bool { return c.tls != nil }

// handshakes reports whether the TLS handshake has not ended. The first Read or Write does it.
func (c *Conn) handshakes() bool {
	t, ok := c.stream.(*tls.Conn)
	return ok && !t.ConnectionState().HandshakeComplete
}
