package control

import (
	"fmt"
	"net/netip"
	"testing"
)

func TestOneIPv6NetworkIsOneAddress(t *testing.T) {
	var n counts
	limits := Limits{MaxPerAddress: 3}
	from := func(a string) netip.Prefix { return networkOf(netip.MustParseAddr(a)) }
	conns := make(map[*Conn]netip.Prefix)
	for i := range 3 {
		for _, a := range []string{"2001:db8::%d", "192.0.2.%d"} {
			c := new(Conn)
			conns[c] = from(fmt.Sprintf(a, i))
			n.enter(c, conns[c])
		}
	}
	for a, refused := range map[string]bool{
		"2001:db8::ffff:1": true, "2001:db8:0:1::1": false, "192.0.2.0": false, "192.0.2.1": false,
	} {
		if r, _ := n.refusal(from(a), limits); (r.Code == 421) != refused {
			t.Errorf("%s: %v", a, r)
		}
	}
	if r, _ := n.refusal(from("2001:db8::9"), Limits{}); r.Code != 0 {
		t.Error("no limits:", r)
	}
	for c, from := range conns {
		n.settle(c, from)
		n.settle(c, from)
		n.leave(c, from)
	}
	if len(n.addresses) != 0 || n.connected != 0 || n.notLoggedIn != 0 {
		t.Errorf("%+v", n)
	}
}

// Who is sent away is one of the address with the most connections that are not logged in.
func TestTheAddressWithTheMostGivesUpOne(t *testing.T) {
	var n counts
	limits := Limits{MaxConnections: 40}
	addresses := make([]netip.Prefix, 5)
	for i := range addresses {
		addresses[i] = networkOf(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}))
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
			if got := len(n.at(addresses[i]).notLoggedIn); got != w || n.notLoggedIn > 10 {
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
	for ports, each := range map[int]int{1: 1, 2: 1, 3: 1, 4: 2, 2768: 1384} {
		s := make(shares)
		for i := range each {
			if !s.take("a", ports) {
				t.Fatalf("%d ports: refused after %d", ports, i)
			}
		}
		if s.take("a", ports) {
			t.Errorf("%d ports: more than %d", ports, each)
		}
		if !s.take("b", ports) {
			t.Errorf("%d ports: one account takes another's", ports)
		}
		s.giveBack("a")
		if !s.take("a", ports) {
			t.Errorf("%d ports: what was given back is lost", ports)
		}
	}
	s := make(shares)
	for range 10_000 {
		if !s.take("a", 0) {
			t.Fatal("without a range there is no share")
		}
	}
	for range 10_000 {
		s.giveBack("a")
	}
	if len(s) != 0 {
		t.Error(s)
	}
}
