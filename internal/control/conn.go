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
// The fields above in never change, or belong to the goroutine that executes commands. During a transfer that is the transfer's
// goroutine, and the reader only reads ahead.
type Conn struct {
	*wire
	id      uint64
	server  *Server
	handler Handler
	addr    Addr
	client  netip.Addr // of the client
	local   netip.Addr // of the server, to which the client connected
	account string     // "": not logged in
	stream  net.Conn   // wire, or a *tls.Conn over it
	clientSettings
	reply []byte // a buffer for the next reply

	// These fields belong to Read.
	in            input
	line          []byte    // a buffer for the line that Read returns
	rest          []byte    // the part of line that Read returns next
	notIdleBefore time.Time // the client is not idle before, see Handler.IdleFor

	current    atomic.Pointer[Command]    // under way; nil: the next one may begin
	endRequest atomic.Pointer[endRequest] // to end the connection; Read carries it out
	examined   atomic.Uint64              // how much of wire.bytesRead Read has examined
	inputWaits atomic.Bool                // Read waits during a transfer, and input that it has read waits for the transfer

	concluded sync.Once

	mu             sync.Mutex
	inHandshake    bool       // the TLS handshake is under way
	armed          time.Time  // the read deadline; past: Read was woken; the zero Time: unknown
	unacknowledged []delivery // the replies since the last line came
}

// clientSettings has the client's settings for its next commands.
type clientSettings struct {
	ascii   bool        // TYPE A (RFC 959 section 3.1.1); the default
	private bool        // PROT P
	epsvAll bool        // RFC 2428 section 4
	named   bool        // USER was sent for the next PASS
	sized   bool        // PBSZ was sent
	facts   []string    // of MLSD and MLST
	hash    string      // the digest that HASH computes
	tls     *tls.Config // nil: the connection is not encrypted

	prepared bool  // PASV, EPSV, PORT or EPRT was sent for the next transfer
	port     *Port // the passive port; nil: none
}

func newConn(s *Server, nc net.Conn, id uint64, implicit *tls.Config) *Conn {
	c := &Conn{
		wire:           newWire(nc, s.writeTimeout),
		id:             id,
		server:         s,
		client:         ipOf(nc.RemoteAddr()),
		local:          ipOf(nc.LocalAddr()),
		in:             input{limit: maxLine},
		clientSettings: clientSettings{ascii: true, facts: factNames, hash: hashNames[0], tls: implicit},
	}
	c.addr = Addr{Addr: nc.RemoteAddr(), Conn: c}
	c.stream = c.wire
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

// CheckDataConnection returns the refusal of a data connection, or the zero Reply. The driver calls it, and not Read, so that the library
// begins the transfer, and forgets REST, in any case.
func (c *Conn) CheckDataConnection() Reply {
	switch {
	case !c.prepared:
		return Reply{Code: 425, Text: "use PASV, EPSV, PORT or EPRT first"}
	case c.server.opts.Policy().TLSRequired && !c.private:
		return Reply{Code: 522, Text: "data connections must be encrypted: send PROT P first"} // RFC 4217 section 9
	}
	return Reply{}
}

// LogIn records that the client has logged in with an account. Only the goroutine that executes commands may call it. Before, only
// commands with the flag beforeLogin reach the library.
func (c *Conn) LogIn(account string) {
	c.server.countLogin(c)
	c.account = account
}

func (c *Conn) isLoggedIn() bool { return c.account != "" }

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
		if o := c.endRequest.Load(); o != nil && !o.waitsFor(transfer) {
			c.concluded.Do(func() { c.conclude(*o) })
			return false
		}
		if transfer != nil {
			c.inputWaits.Store(c.in.r < c.in.w)
			c.lookAhead(transfer, promptConnection)
			if c.current.Load() == nil { // it ended before it could see ahead
				continue
			}
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
	var cmd *Command
	defer func() { // one client's panic must not end the other sessions
		if r := recover(); r != nil {
			c.server.opts.Logger.Error("panic in a command", "panic", r, "stack", string(debug.Stack()))
			c.answer(internalError)
			if cmd != nil && !cmd.ended {
				c.handler.End(cmd)
			}
		}
	}()
	cmd, fault := parse(line, tooLong)
	if cmd == nil {
		if fault.Code != 0 {
			c.answer(fault)
		}
		return false
	}
	cmd.conn, cmd.verb, cmd.forLibrary = c, c.server.verbs[cmd.Verb], cmd.Line
	c.handler.Begin(cmd)
	if r := c.answerOrPrepare(cmd); r.Code != 0 {
		c.answer(r)
		if r.Code == 234 { // RFC 4217 section 4.1
			c.in = input{limit: c.in.limit} // drop input that came in the clear after AUTH (CVE-2011-0411)
			c.encrypt(c.server.opts.TLS)
		}
		cmd.ended = true
		c.handler.End(cmd)
		return false
	}
	if cmd.Transfers() {
		cmd.begin(c.port)
	}
	c.current.Store(cmd)
	if cmd.Transfers() { // a QUIT may have come in the same packet
		c.lookAhead(cmd, c.server.lateTimeout)
		c.examined.Store(c.wire.bytesRead.Load()) // so that CatchUp need not wait
	}
	c.line = append(append(c.line[:0], cmd.forLibrary...), "\r\n"...)
	c.rest = c.line
	return true
}

// answerOrPrepare returns the reply to a command that this package answers. Otherwise it prepares cmd.forLibrary for the library.
func (c *Conn) answerOrPrepare(cmd *Command) (r Reply) {
	v := cmd.verb
	switch {
	case v == nil:
		return Reply{Code: 500, Text: Quoted(cmd.Verb) + " is not a command of this server"}
	case !v.is(beforeLogin) && !c.isLoggedIn():
		return notLoggedIn
	case v.is(needsArgument) && cmd.trimmed() == "":
		return Reply{Code: 501, Text: cmd.Verb + " needs an argument: " + v.usage}
	case v.prepare != nil:
		r = v.prepare(c, cmd)
	}
	if len(cmd.forLibrary) > maxLine && r.Code == 0 {
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
		c.prepared = c.prepared && c.port == nil // the bytes of a refused upload may wait in the port
	}
	if !cmd.ended {
		c.handler.End(cmd)
	}
	c.current.Store(nil)
	if cmd.Transfers() {
		close(cmd.done)
		if c.inputWaits.Load() || c.endRequest.Load() != nil {
			c.interruptRead(true)
		}
	}
}

// encrypt puts TLS over the wire, and does the handshake. If that fails, the connection ends.
func (c *Conn) encrypt(config *tls.Config) {
	c.tls = c.server.controlTLS(config)
	secure := tls.Server(c.wire, c.tls)
	c.stream = secure
	c.mu.Lock()
	c.inHandshake = true
	if c.endRequest.Load() == nil {
		c.armed = time.Time{} // a pending Wake must not interrupt the handshake
	}
	c.mu.Unlock()
	c.arm()
	err := secure.Handshake()
	c.mu.Lock()
	c.inHandshake = false
	c.mu.Unlock()
	if err != nil {
		c.requestEnd(endRequest{why: ReasonTLS})
	}
}

// isTLS reports whether the connection is encrypted.
func (c *Conn) isTLS() bool { return c.tls != nil }
