package control

import (
	"net"
	"net/netip"
	"testing"
)

// A data connection may go to a port that the server uses at another address of this machine.
func TestUsesComparesAddressAndPort(t *testing.T) {
	for _, c := range []struct {
		listen, to string
		want       bool
	}{
		{"127.0.0.1:0", "127.0.0.1", true}, {"127.0.0.1:0", "127.0.0.2", false}, {"127.0.0.1:0", "::1", false},
		{"[::1]:0", "::1", true}, {"[::1]:0", "127.0.0.1", false},
		{"0.0.0.0:0", "127.0.0.1", true}, {"[::]:0", "127.0.0.1", true}, {"[::]:0", "::1", true},
	} {
		l, err := net.Listen("tcp", c.listen)
		if err != nil {
			t.Fatal(err)
		}
		s := NewServer(Options{Ports: NewPorts(PortOptions{Range: func() (first, last uint16) { return 0, 0 }})})
		ours := s.Listen(l, nil)
		port := uint16(l.Addr().(*net.TCPAddr).Port)
		if got := s.uses(netip.AddrPortFrom(netip.MustParseAddr(c.to), port)); got != c.want {
			t.Errorf("the server listens on %s, a connection goes to %s: %v", c.listen, c.to, got)
		}
		if s.uses(netip.AddrPortFrom(netip.MustParseAddr(c.to), port^1)) {
			t.Errorf("another port is the server's, too")
		}
		ours.Close()
	}
}

func TestPortRange(t *testing.T) {
	for text, want := range map[string][2]uint16{
		"10000\t20000\n": {10000, 20000},
		"":               {32768, 60999}, "10000\n": {32768, 60999}, "10000\t65536\n": {32768, 60999},
	} {
		if first, last := portRange(text); first != want[0] || last != want[1] {
			t.Errorf("%q: %d to %d, want %v", text, first, last, want)
		}
	}
}
