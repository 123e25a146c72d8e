package integration

import (
	"fmt"
	"net"
	"strings"
	"testing"
)

// Clients that use up connections and ports, and have the server connect to where they cannot. Others are served all the same.

// from is an address of this machine.
func from(address string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(address)} }

// silent opens n connections from an address and says nothing. It returns how many of them were let in.
func (s *server) silent(n int, address string) (greeted int) {
	s.t.Helper()
	for range n {
		c, greeting, err := connectFrom(from(address), s.v4)
		if err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(func() { c.conn.Close() })
		if greeting.code == 220 {
			greeted++
		} else if greeting.code != 421 {
			s.t.Fatal(greeting)
		}
	}
	return greeted
}

func TestSilentConnectionsDoNotFillTheServer(t *testing.T) {
	t.Parallel()
	t.Run("from one address", func(t *testing.T) {
		s := startServer(t, defaults)
		greeted := s.silent(150, "127.0.3.1")
		s.session(account).want(200, "NOOP")
		if greeted != 100 {
			t.Errorf("%d of 150 were let in", greeted)
		}
	})
	t.Run("from many addresses", func(t *testing.T) {
		s := startServer(t, "[ftp]\nmax_connections = 400\n"+defaults)
		for i := range 10 {
			s.silent(45, fmt.Sprintf("127.0.3.%d", i+1))
		}
		s.session(account).want(200, "NOOP")
	})
	t.Run("logged in", func(t *testing.T) {
		s := startServer(t, "[ftp]\nmax_connections_per_address = 20\n"+defaults)
		for range 20 {
			s.sessionFrom("127.0.3.1", "other")
		}
		if c, err := loginFrom(from("127.0.3.1"), s.v4, "other"); err == nil {
			c.conn.Close()
			t.Error("one more was let in")
		}
		s.session(account).want(200, "NOOP")
	})
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
	c.want(200, "TYPE I")
	_, port := split(s.v4)
	for _, to := range []string{port, "20399"} {
		for _, line := range []string{"EPRT |1|127.0.0.1|" + to + "|", "EPRT |2|::ffff:127.0.0.1|" + to + "|"} {
			r, err := c.try(line)
			if err != nil {
				t.Fatal(err)
			}
			if r.code != 501 {
				t.Errorf("%s: %v", line, r)
				if r, err = c.try("RETR /evil"); err == nil && r.code == 150 {
					_, _ = c.readReply()
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
	defer c6.conn.Close()
	_, port6 := split(s.v6)
	if r, err := c6.try("EPRT |2|::1|" + port6 + "|"); err != nil || r.code != 501 || !strings.Contains(r.text, "port") {
		t.Error(r, err)
	}
}
