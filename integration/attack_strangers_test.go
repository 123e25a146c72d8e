package integration

import (
	"net"
	"strings"
	"testing"
	"time"
)

// from returns an address of this machine.
func from(address string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(address)} }

// silent opens n connections from an address and sends nothing. It returns the accepted ones.
func (s *server) silent(n int, address string) (greeted []*session) {
	s.t.Helper()
	for range n {
		c, greeting, err := connectFrom(from(address), s.v4)
		if err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(func() { c.Conn.Close() })
		if greeting.Code == 220 {
			greeted = append(greeted, c)
		} else if greeting.Code != 421 {
			s.t.Fatal(greeting)
		}
	}
	return greeted
}

// TestAttackConnectionsThatNeverLogIn fills the server with connections that send nothing, that do not log in, or that are logged in.
func TestAttackConnectionsThatNeverLogIn(t *testing.T) {
	t.Parallel()
	t.Run("more than the server has", func(t *testing.T) {
		s := startServer(t, "[ftp]\nmax_connections = 40\nlogin_timeout = '6s'\n")
		harmless := s.session(account)
		greeted := s.silent(count(60, 2000), "127.0.0.1")
		if len(greeted) > 20 {
			t.Errorf("%d connections that are not logged in, of 40 at most", len(greeted))
		}
		harmless.served("silent connections")
		ends := time.Now().Add(patience)
		for _, c := range greeted {
			for c.ask("NOOP") != "" { // it renews nothing
				if time.Now().After(ends) {
					t.Fatal("a connection that says NOOP is still there long after its login_timeout")
				}
				time.Sleep(50 * time.Millisecond)
			}
		}
		s.session(account).served("after the silent connections")
	})
	t.Run("more than one address may have", func(t *testing.T) {
		s := startServer(t, defaults)
		if greeted := len(s.silent(150, "127.0.3.1")); greeted != 100 {
			t.Errorf("%d of 150 were let in", greeted)
		}
		s.session(account).Want(200, "NOOP")
	})
	t.Run("logged in", func(t *testing.T) {
		s := startServer(t, "[ftp]\nmax_connections_per_address = 20\n"+defaults)
		for range 20 {
			s.sessionFrom("127.0.3.1", "other")
		}
		if c, err := loginFrom(from("127.0.3.1"), s.v4, "other"); err == nil {
			c.Conn.Close()
			t.Error("one more was let in")
		}
		s.session(account).Want(200, "NOOP")
	})
}

// served fails the test if a client that is logged in gets no service.
func (s *session) served(what string) {
	s.T.Helper()
	for _, line := range []string{"NOOP", "MKD /locks/harmless", "RMD /locks/harmless"} {
		if got := s.ask(line); !strings.HasPrefix(got, "2") {
			s.T.Errorf("%s: %s: %q", what, line, got)
		}
	}
}
