package control_test

import (
	"crypto/tls"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/control"
)

func TestStartTLS(t *testing.T) {
	s := serve(t, "tcp4", control.Options{})
	c := s.dial()
	if c.h.c.TLS() != nil {
		t.Error("TLS in the clear")
	}
	c.play("> NOOP", "< 200 ", "> AUTH TLS", "< 234 go on")
	c.startTLS()
	c.play("> NOOP", "< 200 ", "> USER u", "< 331 ", "> PASS p", "< 230 ", "> AUTH TLS", "< 503 ")
	if state := c.h.c.TLS(); state == nil || !state.HandshakeComplete {
		t.Error("no TLS state")
	}
	_ = c.conn.Close()
	c.h.endedWith(t, control.ReasonEOF)
}

// The flaw of CVE-2011-0411: what somebody put behind AUTH in the clear must not be taken
// for something that came over TLS.
func TestCommandsInTheClearBehindAuthAreNotExecuted(t *testing.T) {
	s := serve(t, "tcp4", control.Options{})
	c := s.dial()
	c.play(">> AUTH TLS\r\nMKD injected\r\nNO", "< 234 ")
	c.startTLS()
	c.play("> XPWD", `< 257 "/" is it`)
	if got := c.h.executed(); got != "AUTH TLS; XPWD" {
		t.Errorf("executed: %s", got)
	}
}

func TestAFailedHandshakeEndsTheConnection(t *testing.T) {
	for name, f := range map[string]func(c *client){
		"no TLS":  func(c *client) { c.send("NOOP\r\nNOOP\r\nNOOP\r\n") },
		"silence": func(c *client) {},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, "tcp4", control.Options{HandshakeTimeout: 100 * time.Millisecond})
			c := s.dial()
			c.play("> AUTH TLS", "< 234 ")
			f(c)
			c.h.endedWith(t, control.ReasonTLS)
		})
	}
}

func TestImplicitTLS(t *testing.T) {
	s := serve(t, "tcp4", control.Options{}, plain)
	plain2, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	secure, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	two := &server{t: t, fs: s.fs, served: make(chan error, 1), handlers: make(chan *handler, 10), tls: s.tls}
	two.listener = control.NewListener(control.Options{
		NewHandler:       func(c *control.Conn) control.Handler { return newHandler(two, c) },
		HandshakeTimeout: 200 * time.Millisecond,
	}, control.Source{Listener: secure, TLS: s.tls}, control.Source{Listener: plain2})
	two.addr = plain2.Addr().String()
	two.run()

	// One that does not shake hands does not keep the others from being accepted.
	silent, err := net.Dial("tcp", secure.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	silentHandler := <-two.handlers

	c := two.dial()
	c.play("> NOOP", "< 200 ")

	nc, err := tls.Dial("tcp", secure.Addr().String(), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	c.conn = nc
	c.r.Reset(nc)
	c.play("< 220 ", "> NOOP", "< 200 ", "> AUTH TLS", "< 503 ", "> QUIT", "< 221 ")
	silentHandler.endedWith(t, control.ReasonTLS)
}

func TestCloseEndsAHandshake(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, served: make(chan error, 1), handlers: make(chan *handler, 10), tls: certificate(t)}
	s.listener = control.NewListener(control.Options{
		NewHandler:       func(c *control.Conn) control.Handler { return newHandler(s, c) },
		HandshakeTimeout: time.Hour,
	}, control.Source{Listener: l, TLS: s.tls})
	s.run()
	for range 20 {
		nc, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		h := <-s.handlers
		_ = h.c.Close()
		h.endedWith(t, control.ReasonClosed)
		_ = nc.Close()
	}
}

// dribble writes every byte by itself.
type dribble struct{ net.Conn }

func (d dribble) Write(p []byte) (int, error) {
	for i := range p {
		if _, err := d.Conn.Write(p[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(p), nil
}

func TestReadMayBeWokenInTheMiddleOfATLSRecord(t *testing.T) {
	s := serve(t, "tcp4", control.Options{IdleTimeout: time.Hour})
	c := s.dial()
	c.play("> AUTH TLS", "< 234 ")
	slow := tls.Client(dribble{c.tcp}, &tls.Config{InsecureSkipVerify: true})
	_ = c.tcp.SetDeadline(time.Now().Add(patience))
	if err := slow.Handshake(); err != nil {
		t.Fatal(err)
	}
	c.conn = slow
	c.r.Reset(slow)
	stop := make(chan struct{})
	waked := make(chan struct{})
	go func() {
		defer close(waked)
		for {
			select {
			case <-stop:
				return
			default:
				c.h.c.Wake()
				runtime.Gosched()
			}
		}
	}()
	for range 50 {
		c.play("> NOOP", "< 200 ")
	}
	close(stop)
	<-waked
	c.play("> NOOP", "< 200 ")
}
