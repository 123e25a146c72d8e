package control

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
)

func TestOneIPv6NetworkIsOneAddress(t *testing.T) {
	n := NewServer(Options{})
	from := func(a string) netip.Prefix { return NetworkOf(netip.MustParseAddr(a)) }
	count := func(by int) {
		for i := range 3 {
			for _, a := range []string{"2001:db8::%d", "192.0.2.%d"} {
				n.countLocked(from(fmt.Sprintf(a, i)), by, by)
			}
		}
	}
	count(1)
	for a, refused := range map[string]bool{
		"2001:db8::ffff:1": true, "2001:db8:0:1::1": false, "192.0.2.0": false, "192.0.2.1": false,
	} {
		if r := n.refusalLocked(from(a), Limits{MaxPerAddress: 3}); (r.Code == 421) != refused {
			t.Errorf("%s: %v", a, r)
		}
	}
	if count(-1); len(n.networks) != 0 || n.notLoggedIn != 0 {
		t.Errorf("%+v", n)
	}
}

func TestSharesOfPorts(t *testing.T) {
	for n, each := range map[uint16]int{1: 1, 2: 1, 3: 1, 4: 2, 2768: 1384, 0: 0} {
		p := NewPorts(PortOptions{Range: func() (uint16, uint16) { return min(n, 1), n }})
		for i := range each {
			if !p.reserve("a") {
				t.Fatalf("%d ports: refused after %d", n, i)
			}
		}
		if p.reserve("a") != (n == 0) || !p.reserve("b") {
			t.Errorf("%d ports: not %d for each", n, each)
		}
	}
}

func TestRefusedConnectionsAreGreetedWith421(t *testing.T) {
	for name, l := range map[string]Limits{
		"connections":                        {MaxConnections: 2},
		"connections from your address":      {MaxPerAddress: 2},
		"connections that are not logged in": {MaxConnections: 8},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, limited(l))
			first, second := s.dial(), s.dial
			if l.MaxConnections < 8 {
				first.logIn()
				second = s.login
			}
			second()
			nc, err := net.Dial("tcp", s.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			if got, err := io.ReadAll(nc); err != nil || string(got) != "421 too many "+name+"\r\n" {
				t.Errorf("%q, %v", got, err)
			}
			if len(s.libraries) != 0 {
				t.Error("it reached the library")
			}
			first.play("> QUIT; < 221")
			first.expectEOF()
			s.dial().logIn()
		})
	}
}

// failing is a listener whose first Accept fails.
type failing struct {
	net.Listener
	failed bool
}

func (l *failing) Accept() (net.Conn, error) {
	if !l.failed {
		l.failed = true
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: syscall.ENOBUFS}
	}
	return l.Listener.Accept()
}

func TestAnErrorOfAcceptDoesNotEndTheServer(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serve(t, func(o *setup) { o.listener = &failing{Listener: l} }).dial()
}
