package control

import (
	"crypto/tls"
	"net"
	"runtime"
	"testing"
	"time"
)

func TestStartTLS(t *testing.T) {
	c := serve(t, withTLS).dial()
	c.play("> NOOP; < 250; > PBSZ 0; < 503; > USER u; < 331")
	c.startTLS(c.TCP)
	c.logIn()
	c.play("> AUTH TLS; < 503 the connection is encrypted; > PBSZ 0; < 200 PBSZ=0; > PROT X; < 504; > PROT E; < 536; > PROT p; < 250")
	c.lib.conn.Kick(Reply{Code: 421, Text: "enough"})
	c.expect("421 enough")
	c.expectEOF() // close_notify came
}

// CVE-2011-0411: an attacker may add commands after AUTH in the clear; they must not be executed as if they came over TLS.
func TestCommandsSentWithAuthAreNotExecuted(t *testing.T) {
	c := serve(t, withTLS).dial()
	c.send("AUTH TLS\r\nUSER injected\r\nNO")
	c.expect("234 ")
	secure := tls.Client(c.TCP, &tls.Config{InsecureSkipVerify: true})
	c.Conn = secure
	c.R.Reset(secure)
	c.play("> NOOP; < 250")
	if got := c.h.executed(); got != "AUTH TLS; NOOP" {
		t.Errorf("executed: %s", got)
	}
}

func TestAFailedHandshakeEndsTheConnection(t *testing.T) {
	for _, after := range []string{"", "NOOP\r\nNOOP\r\nNOOP\r\n"} {
		c := serve(t, withTLS, limited(Limits{LoginTimeout: 100 * time.Millisecond})).dial()
		c.play("> AUTH TLS; < 234")
		c.send(after)
		c.h.endedWith(t, ReasonTLS)
	}
}

// A client that sends no handshake does not delay others.
func TestImplicitTLS(t *testing.T) {
	s := serve(t, func(o *setup) { o.implicit = certificate() }, limited(Limits{LoginTimeout: time.Second}))
	silent, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	lib := <-s.libraries
	nc, err := tls.Dial("tcp", s.addr, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	c := s.client(nc)
	c.play("> AUTH TLS; < 5; > PBSZ 0; < 200 PBSZ=0; > QUIT; < 221")
	lib.conn.Handler().(*handler).endedWith(t, ReasonTLS)
}

// dribble writes single bytes.
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
	c := serve(t, withTLS, limited(Limits{IdleTimeout: time.Hour})).dial()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { // the handshake, too
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				c.lib.conn.Wake()
				runtime.Gosched()
			}
		}
	}()
	c.startTLS(dribble{c.TCP})
	for range 50 {
		c.play("> NOOP; < 250")
	}
	close(stop)
	<-stopped
	c.play("> NOOP; < 250")
}
