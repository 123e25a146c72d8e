package control

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
)

func TestOneIPv6NetworkIsOneAddress(t *testing.T) {
	n := newCounts()
	from := func(a string) netip.Prefix { return NetworkOf(netip.MustParseAddr(a)) }
	var conns []*Conn
	for i := range 3 {
		for _, a := range []string{"2001:db8::%d", "192.0.2.%d"} {
			c := new(Conn)
			n.enter(c, from(fmt.Sprintf(a, i)))
			conns = append(conns, c)
		}
	}
	for a, refused := range map[string]bool{
		"2001:db8::ffff:1": true, "2001:db8:0:1::1": false, "192.0.2.0": false, "192.0.2.1": false,
	} {
		if r, _ := n.refusal(from(a), Limits{MaxPerAddress: 3}); (r.Code == 421) != refused {
			t.Errorf("%s: %v", a, r)
		}
	}
	for _, c := range conns {
		n.settle(c)
		n.leave(c)
	}
	if len(n.addresses) != 0 || len(n.conns) != 0 || n.notLoggedIn != 0 {
		t.Errorf("%+v", n)
	}
}

// Who is sent away is one of the address with the most connections that are not logged in.
func TestTheAddressWithTheMostGivesUpOne(t *testing.T) {
	n := newCounts()
	limits := Limits{MaxConnections: 40}
	addresses := make([]netip.Prefix, 5)
	for i := range addresses {
		addresses[i] = NetworkOf(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}))
	}
	enter := func(i int) bool {
		r, _ := n.refusal(addresses[i], limits)
		if r.Code == 0 {
			n.enter(new(Conn), addresses[i])
		}
		return r.Code == 0
	}
	have := func(want ...int) {
		t.Helper()
		for i, w := range want {
			got := 0
			if a := n.addresses[addresses[i]]; a != nil {
				got = len(a.notLoggedIn)
			}
			if got != w || n.notLoggedIn > 10 {
				t.Errorf("address %d has %d, want %d; %d in all", i, got, w, n.notLoggedIn)
			}
		}
	}
	for range 12 {
		enter(0)
	}
	have(10, 0)
	if !enter(1) || !enter(2) {
		t.Error("others are kept out")
	}
	have(8, 1, 1)
	for range 12 {
		enter(1)
	}
	have(5, 4, 1)
	if enter(0) || enter(1) || !enter(3) {
		t.Error("the wrong one was refused")
	}
	have(4, 4, 1, 1)
}

func TestSharesOfPorts(t *testing.T) {
	for n, each := range map[uint16]int{1: 1, 2: 1, 3: 1, 4: 2, 2768: 1384, 0: 0} {
		p := NewPorts(PortOptions{Range: func() (uint16, uint16) { return min(n, 1), n }})
		for i := range each {
			if !p.take("a") {
				t.Fatalf("%d ports: refused after %d", n, i)
			}
		}
		if p.take("a") != (n == 0) || !p.take("b") {
			t.Errorf("%d ports: not %d for each", n, each)
		}
	}
}

func TestTheGreetingOfARefusedConnection(t *testing.T) {
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
			first.play("> QUIT", "< 221 ")
			first.expectEOF()
			s.dial().logIn()
		})
	}
}

func TestTheSurplusConnectionIsSentAway(t *testing.T) {
	s := serve(t, limited(Limits{MaxConnections: 8})) // so two may be not logged in
	s.dial()
	s.dial()
	from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	nc, err := from.Dial("tcp", s.addr)
	if err != nil {
		t.Skip(err)
	}
	c := s.client(nc)
	c.until("one of the others is sent away", func() bool { return s.connected() == 2 })
	c.logIn()
}
