package integration

import (
	"net"
	"strings"
	"testing"
	"time"
)

// from is an address of this machine.
func from(address string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(address)} }

// silent opens n connections from an address and says nothing. It returns those that were let in.
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

// TestAttackConnectionsThatNeverLogIn fills the server with connections that are silent, or speak without logging in, or are logged in.
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

// TestAttackPassivePortsThatNobodyUses has one account ask for all passive ports and never connect to them.
func TestAttackPassivePortsThatNobodyUses(t *testing.T) {
	t.Parallel()
	s := startServer(t, "[ftp]\npassive_ports = '28100-28119'\n")
	s.write("f", "content")
	harmless := s.session(account)
	held := 0
	for range count(40, 400) {
		if strings.HasPrefix(s.session("other").ask("EPSV"), "229") {
			held++
		}
	}
	if held > 10 {
		t.Errorf("one account holds %d of 20 passive ports", held)
	}
	if got := harmless.fetch("RETR /f"); !strings.HasPrefix(got, "content226") {
		t.Errorf("a download of another account: %q", got)
	}
	// One session has one port, however often it asks.
	c := s.session(account)
	for range count(30, 300) {
		c.ask("EPSV")
	}
	if got := harmless.fetch("RETR /f"); !strings.HasPrefix(got, "content226") {
		t.Errorf("a download beside a session that asks for ports again and again: %q", got)
	}
}

// The server does not connect to itself, nor to services of its machine, for a client there or behind a relay there.
func TestActiveConnectionsDoNotReachServicesOfThisMachine(t *testing.T) {
	t.Parallel()
	s := startServer(t, defaults)
	s.write("evil", "MKD /locks/evil\r\n")
	service, err := net.Listen("tcp", "127.0.0.1:20399") // below the ports for clients
	if err != nil {
		t.Skip(err)
	}
	reached := make(chan struct{})
	go func() {
		defer close(reached)
		if conn, err := service.Accept(); err == nil {
			conn.Close()
			t.Error("the server has connected to a service")
		}
	}()
	c := s.session(account)
	c.Want(200, "TYPE I")
	_, port := split(s.v4)
	for _, to := range []string{port, "20399"} {
		for line, refusal := range map[string]int{"EPRT |1|127.0.0.1|" + to + "|": 501, "EPRT |2|::ffff:127.0.0.1|" + to + "|": 522} {
			r, err := c.Try(line)
			if err != nil {
				t.Fatal(err)
			}
			if r.Code != refusal {
				t.Errorf("%s: %v", line, r)
				if r, err = c.Try("RETR /evil"); err == nil && r.Code == 150 {
					_, _ = c.ReadReply()
				}
			}
		}
	}
	service.Close()
	<-reached
	c6, err := login(s.v6, account)
	if err != nil {
		t.Skip(err)
	}
	defer c6.Conn.Close()
	_, port6 := split(s.v6)
	if r, err := c6.Try("EPRT |2|::1|" + port6 + "|"); err != nil || r.Code != 501 || !strings.Contains(r.Text, "port") {
		t.Error(r, err)
	}
}

// served fails the test if a harmless client, which is logged in, is not served.
func (s *session) served(what string) {
	s.T.Helper()
	for _, line := range []string{"NOOP", "MKD /locks/harmless", "RMD /locks/harmless"} {
		if got := s.ask(line); !strings.HasPrefix(got, "2") {
			s.T.Errorf("%s: %s: %q", what, line, got)
		}
	}
}
