package control

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// client is the other end of a control connection.
type client struct {
	*harness.Session
	s       *server
	t       *testing.T
	lib     *library
	h       *handler
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
	c := &client{Session: harness.NewSession(nc, 100*time.Hour), s: s, t: s.t, began: make(chan struct{}, 10)}
	if c.TCP != nil { // no bubble of synctest
		c.Haste = patience
	}
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
	if err := c.SendRaw(raw); err != nil {
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

// expect reads a line for each prefix.
func (c *client) expect(prefixes ...string) {
	c.t.Helper()
	for _, prefix := range prefixes {
		if line, err := c.Line(); err != nil || !strings.HasPrefix(line, prefix) {
			c.t.Fatalf("got %q, %v; want %q", line, err, prefix)
		}
	}
}

func (c *client) expectEOF() {
	c.t.Helper()
	if line, err := c.Line(); err != io.EOF {
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
			_ = c.TCP.Close()
		case "half-close":
			_ = c.TCP.CloseWrite()
		case "reset":
			reset(c.TCP)
		case "byte": // reads one
			if _, err := io.ReadFull(c.TCP, make([]byte, 1)); err != nil {
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
	r, err := c.ReadReply()
	if port := harness.Port(r.Text); port != 0 {
		return fmt.Sprint("127.0.0.1:", port)
	}
	c.t.Fatal(r, err)
	return ""
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
	if err := c.Handshake(tls.Client(wire, &tls.Config{InsecureSkipVerify: true})); err != nil {
		c.t.Fatal(err)
	}
}
