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
	for i := range 3 {
		n.add(from(fmt.Sprintf("2001:db8::%d", i)), 1, 1)
		n.add(from(fmt.Sprintf("192.0.2.%d", i)), 1, 1)
	}
	for a, refused := range map[string]bool{
		"2001:db8::ffff:1": true, "2001:db8:0:1::1": false, "192.0.2.0": false, "192.0.2.1": false,
	} {
		if r := n.refusal(from(a), limits); (r.Code == 421) != refused {
			t.Errorf("%s: %v", a, r)
		}
	}
	if r := n.refusal(from("2001:db8::9"), Limits{}); r.Code != 0 {
		t.Error("no limits:", r)
	}
	for i := range 3 {
		n.add(from(fmt.Sprintf("2001:db8::%d", i)), 0, -1)
		n.add(from(fmt.Sprintf("2001:db8::%d", i)), -1, 0)
		n.add(from(fmt.Sprintf("192.0.2.%d", i)), -1, -1)
	}
	if len(n.addresses) != 0 || n.all != (count{}) {
		t.Errorf("%+v", n)
	}
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
