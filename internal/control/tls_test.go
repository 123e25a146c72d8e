package control_test

import (
	"crypto/tls"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/control"
)

func TestStartTLS(t *testing.T) {
	for _, mechanism := range []string{"TLS", "tls", "TLS-C", "SSL"} {
		t.Run(mechanism, func(t *testing.T) {
			s := serve(t, "tcp4", control.Options{})
			c := s.dial()
			c.play("> NOOP", "< 200 ", "> USER u", "< 331 ", "> AUTH "+mechanism, "< 234 ")
			c.startTLS()
			c.play("> NOOP", "< 200 ", "> USER u", "< 331 ", "> PASS p", "< 230 ", "> AUTH TLS", "< 503 ", "> REIN", "< 502 ")
			_ = c.conn.Close()
			c.h.endedWith(t, control.ReasonEOF)
		})
	}
}

func TestAuthIsRefused(t *testing.T) {
	s := serve(t, "tcp4", control.Options{})
	c := s.dial()
	c.play("> AUTH", "< 501 ", "> AUTH KERBEROS_V4", "< 504 ", "> PBSZ 0", "< 503 ", "> PROT P", "< 503 ")
	c = s.login()
	c.play("> AUTH TLS", "< 503 ", "> PWD", "< 257 ")
	s = serve(t, "tcp4", control.Options{}, func(s *server) { s.tls = nil })
	s.dial().play("> AUTH TLS", "< 534 ", "> NOOP", "< 200 ")
}

// The flaw of CVE-2011-0411: what somebody put behind AUTH in the clear must not be taken
// for something that came over TLS.
func TestCommandsInTheClearBehindAuthAreNotExecuted(t *testing.T) {
	s := serve(t, "tcp4", control.Options{})
	c := s.dial()
	c.play(">> AUTH TLS\r\nUSER injected\r\nNO", "< 234 ")
	c.startTLS()
	c.play("> NOOP", "< 200 OK")
	if got := c.h.executed(); got != "AUTH TLS; NOOP" {
		t.Errorf("executed: %s", got)
	}
}

func TestAFailedHandshakeEndsTheConnection(t *testing.T) {
	for name, f := range map[string]func(c *client){
		"no TLS":  func(c *client) { c.send("NOOP\r\nNOOP\r\nNOOP\r\n") },
		"silence": func(c *client) {},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, "tcp4", control.Options{Limits: control.Limits{LoginTimeout: 100 * time.Millisecond}})
			c := s.dial()
			c.play("> AUTH TLS", "< 234 ")
			f(c)
			c.h.endedWith(t, control.ReasonTLS)
		})
	}
}

func TestImplicitTLS(t *testing.T) {
	clear, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	secure, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(t)
	s.taps = nil
	s.addr = clear.Addr().String()
	s.run(control.Options{Limits: control.Limits{LoginTimeout: 200 * time.Millisecond}}, clear, nil)
	s.serve(secure, s.tls)

	// One that does not shake hands does not keep the others from being accepted.
	silent, err := net.Dial("tcp", secure.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	silentHandler := <-s.handlers

	c := s.dial()
	c.play("> NOOP", "< 200 ")

	nc, err := tls.Dial("tcp", secure.Addr().String(), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	c.conn = nc
	c.r.Reset(nc)
	c.play("< 220 ", "> NOOP", "< 200 ", "> AUTH TLS", "< 503 ", "> PBSZ 0", "< 200 ", "> QUIT", "< 221 ")
	silentHandler.endedWith(t, control.ReasonTLS)
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
	s := serve(t, "tcp4", control.Options{Limits: control.Limits{IdleTimeout: time.Hour}})
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
