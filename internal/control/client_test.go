package control

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// client is the other end of a control connection.
type client struct {
	s       *server
	t       *testing.T
	lib     *library
	h       *handler
	tcp     *net.TCPConn // nil in a bubble of synctest
	conn    net.Conn
	r       *bufio.Reader
	port    string        // the address of the passive port
	sent    uint64        // bytes
	before  uint64        // bytes that the server had written before the last send
	began   chan struct{} // gets a value when an MKD begins, see answers and waits
	granted atomic.Bool   // see waits
}

// dial connects and reads the greeting.
func (s *server) dial() *client {
	s.t.Helper()
	nc, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.client(nc)
}

func (s *server) client(nc net.Conn) *client {
	s.t.Helper()
	c := &client{s: s, t: s.t, conn: nc, r: bufio.NewReader(nc), began: make(chan struct{}, 10)}
	c.tcp, _ = nc.(*net.TCPConn)
	select {
	case c.lib = <-s.libraries:
	case <-time.After(patience):
		s.t.Fatal("the connection did not reach the library")
	}
	c.h = c.lib.conn.Handler().(*handler)
	s.t.Cleanup(func() { nc.Close() })
	c.expect("220 ready")
	return c
}

func (s *server) login() *client {
	s.t.Helper()
	c := s.dial()
	c.logIn()
	return c
}

func (c *client) logIn() {
	c.t.Helper()
	c.play("> USER u; < 331; > PASS p; < 230")
}

func (c *client) send(raw string) {
	c.t.Helper()
	c.sent += uint64(len(raw))
	c.before = c.lib.conn.wire.bytesWritten.Load()
	if _, err := io.WriteString(c.conn, raw); err != nil {
		c.t.Fatal(err)
	}
}

// until polls until f returns true.
func (c *client) until(what string, f func() bool) {
	c.t.Helper()
	for end := time.Now().Add(patience); !f(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(end) {
			c.t.Error("nothing happened: " + what) // on any goroutine
			return
		}
	}
}

// settled waits until Read has examined all input sent without TLS, and waits for more.
func (c *client) settled() {
	c.t.Helper()
	c.until("all input is examined", func() bool { return c.lib.conn.examined.Load() >= c.sent })
}

// read reads the next line.
func (c *client) read() (string, error) {
	_ = c.conn.SetReadDeadline(time.Now().Add(100 * time.Hour)) // of synctest, too
	if c.tcp != nil {
		_ = c.conn.SetReadDeadline(time.Now().Add(patience))
	}
	line, err := c.r.ReadString('\n')
	return strings.TrimSuffix(line, "\r\n"), err
}

// expect reads a line for each prefix.
func (c *client) expect(prefixes ...string) {
	c.t.Helper()
	for _, prefix := range prefixes {
		if line, err := c.read(); err != nil || !strings.HasPrefix(line, prefix) {
			c.t.Fatalf("got %q, %v; want %q", line, err, prefix)
		}
	}
}

func (c *client) expectEOF() {
	c.t.Helper()
	if line, err := c.read(); err != io.EOF {
		c.t.Fatalf("got %q, %v instead of the end", line, err)
	}
}

// play plays a transcript of steps with "; " between them: "> line" sends a line with CRLF, ">> text" sends text as it is, "< prefix"
// reads a line. The other steps are in the switch.
func (c *client) play(transcript string) {
	c.t.Helper()
	conn := c.lib.conn
	for step := range strings.SplitSeq(transcript, "; ") {
		switch word, text, _ := strings.Cut(step, " "); word {
		case ">":
			c.send(text + "\r\n")
		case ">>":
			c.send(text)
		case "<":
			c.expect(text)
		case "end": // of the connection, and of what the server sends
			c.expectEOF()
		case "epsv": // opens a passive port
			c.port = c.epsv()
		case "data": // sends nothing over a data connection
			_ = c.data(c.port).Close()
		case "timeout": // of the passive port
			c.settled()
			c.timeOut(conn.port)
		case "close":
			_ = c.tcp.Close()
		case "half-close":
			_ = c.tcp.CloseWrite()
		case "reset":
			reset(c.tcp)
		case "byte": // reads one
			if _, err := io.ReadFull(c.tcp, make([]byte, 1)); err != nil {
				c.t.Fatal(err)
			}
		case "settled":
			c.settled()
		case "written": // the reply to the last line is
			c.until(step, func() bool { return conn.wire.bytesWritten.Load() > c.before })
		case "acknowledged":
			c.until(step, func() bool { return conn.peer().unacked == 0 })
		case "full": // the client's receive buffer is
			c.fill()
		case "begun": // an MKD
			<-c.began
		case "grant":
			c.grant()
		case "wake":
			conn.Wake()
		case "kick":
			conn.Kick(Reply{Code: 421, Text: text})
		case "stop":
			_ = c.s.Shutdown(Reply{Code: 421, Text: text})
		default:
			c.t.Fatalf("no such step: %q", step)
		}
	}
}

// epsv returns the address of a passive port.
func (c *client) epsv() string {
	c.t.Helper()
	c.send("EPSV\r\n")
	line, err := c.read()
	fields := strings.Split(line, "|")
	if err != nil || len(fields) != 5 {
		c.t.Fatal(line, err)
	}
	return "127.0.0.1:" + fields[3]
}

// timeOut lets the timer of a port run out.
func (c *client) timeOut(port *Port) {
	if !port.timer.Reset(0) {
		c.t.Error("the port has no timeout")
	}
	c.until("the port is closed", func() bool {
		port.ports.mu.Lock()
		defer port.ports.mu.Unlock()
		return port.ports.open[port.number] != port
	})
}

// data opens a data connection.
func (c *client) data(addr string) *net.TCPConn {
	c.t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { nc.Close() })
	return nc.(*net.TCPConn)
}

// reset closes the connection with an RST.
func reset(nc *net.TCPConn) {
	_ = nc.SetLinger(0)
	_ = nc.Close()
}

// startTLS upgrades the client, which writes to the wire that is given.
func (c *client) startTLS(wire net.Conn) {
	c.t.Helper()
	c.play("> AUTH TLS; < 234")
	t := tls.Client(wire, &tls.Config{InsecureSkipVerify: true})
	_ = c.tcp.SetDeadline(time.Now().Add(patience))
	if err := t.Handshake(); err != nil {
		c.t.Fatal(err)
	}
	c.conn, c.r = t, bufio.NewReader(t)
}
