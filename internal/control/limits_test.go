package control_test

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/control"
)

// Whatever a client says, it has so long to log in, and no longer.
func TestALoginHasATimeout(t *testing.T) {
	opts := control.Options{Limits: control.Limits{LoginTimeout: 30 * time.Second, IdleTimeout: 5 * time.Minute}}
	for name, lines := range map[string][]string{
		"silence":             {},
		"NOOP":                {"NOOP"},
		"what is answered":    {"STRU F", "HELP", "FEAT"},
		"what is not allowed": {"PWD", "nonsense", "MKD x"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, opts, func(t *testing.T, b *bubble) {
				began := time.Now()
				told := make(chan string)
				go func() {
					for {
						line, err := b.r.ReadString('\n')
						if err != nil || strings.HasPrefix(line, "421 ") {
							told <- line
							return
						}
					}
				}()
				for i := 0; ; i++ {
					select {
					case line := <-told:
						if took := time.Since(began); took != 30*time.Second || !strings.HasPrefix(line, "421 the login took too long") {
							t.Errorf("%q after %v", line, took)
						}
						b.h.endedWith(t, control.ReasonIdle)
						return
					case <-time.After(1100 * time.Millisecond): // not at the moment of the end
						if len(lines) > 0 {
							b.send(lines[i%len(lines)] + "\r\n")
						}
					}
				}
			})
		})
	}
	t.Run("after the login", func(t *testing.T) {
		inBubble(t, opts, func(t *testing.T, b *bubble) {
			b.h.c.LogIn("user")
			time.Sleep(4 * time.Minute)
			b.say("NOOP", "250 ")
		})
	})
}

// dialFrom connects from an address of this machine.
func (s *server) dialFrom(from string) *client {
	s.t.Helper()
	nc, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).Dial("tcp", s.addr)
	if err != nil {
		s.t.Skip(err)
	}
	s.t.Cleanup(func() { _ = nc.Close() })
	return &client{t: s.t, s: s, conn: nc, r: bufio.NewReader(nc)}
}

// Clients that do not log in leave room for those that do.
func TestWhoDoesNotLogInTakesAQuarterAtMost(t *testing.T) {
	s := serve(t, "tcp4", control.Options{Limits: control.Limits{MaxConnections: 40}}, plain)
	var attack []*client
	for range 10 {
		c := s.dialFrom("127.0.0.2")
		c.expect("220 ")
		attack = append(attack, c)
	}
	s.dialFrom("127.0.0.2").expect("421 too many connections that are not logged in")
	for range 3 { // who comes from elsewhere is let in, and logs in
		other := s.dialFrom("127.0.0.3")
		other.expect("220 ")
		other.play("> USER u", "< 331 ", "> PASS x", "< 230 ")
	}
	sentAway := 0
	for _, c := range attack {
		_, _ = io.WriteString(c.conn, "NOOP\r\n")
		if line, err := c.r.ReadString('\n'); err != nil || strings.HasPrefix(line, "421 too many connections that are not logged in") {
			sentAway++
		}
	}
	if sentAway != 1 { // after each login there was room again
		t.Errorf("%d were sent away", sentAway)
	}
}

// The rest of the server is for clients from elsewhere.
func TestOneAddressHasAHundredThatAreNotLoggedIn(t *testing.T) {
	s := serve(t, "tcp4", control.Options{Limits: control.Limits{MaxConnections: 16000, MaxPerAddress: 1000}}, plain)
	var last *client
	for range 100 {
		last = s.dialFrom("127.0.0.2")
		last.expect("220 ")
	}
	s.dialFrom("127.0.0.2").expect("421 too many connections from your address that are not logged in")
	s.dialFrom("127.0.0.3").expect("220 ")
	last.play("> QUIT", "< 221 ")
	last.expectEOF()
	again := s.dialFrom("127.0.0.2")
	again.expect("220 ")
	again.play("> USER u", "< 331 ", "> PASS x", "< 230 ")
	s.dialFrom("127.0.0.2").expect("220 ")
	s.dialFrom("127.0.0.2").expect("421 ")
}
