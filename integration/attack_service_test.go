package integration

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
)

// TestAttackNamesOfAccounts compares how long the server takes to refuse an account that exists, and one that does not.
func TestAttackNamesOfAccounts(t *testing.T) {
	t.Parallel()
	s := startServer(t, "[[account]]\nname = 'far'\npassword = '$2y$10$abcdefghijklmnopqrstuuABCDEFGHIJKLMNOPQRSTUVWXYZ01234'\nnetworks = ['192.0.2.0/24']\n")
	for _, name := range []string{account, "nobody", "far"} {
		c := s.stranger()
		if got := c.ask("USER " + name); !strings.HasPrefix(got, "331") {
			t.Errorf("USER %s: %q", name, got)
		}
		if got := c.ask("PASS wrong"); got != "530 login incorrect" {
			t.Errorf("PASS for %s: %q", name, got)
		}
	}
}

// TestAttackDataConnectionOfAnotherClient connects to the passive port of somebody else from another address.
func TestAttackDataConnectionOfAnotherClient(t *testing.T) {
	t.Parallel()
	s := startServer(t, "")
	owner := s.session(account)
	owner.Want(200, "TYPE I")
	for i := range count(20, 200) {
		number, err := owner.EPSV()
		if err != nil {
			t.Fatal(err)
		}
		port := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: number}
		thief, err := net.DialTCP("tcp", from("127.0.0.2").(*net.TCPAddr), port)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(thief, "forged")
		thief.CloseWrite()
		data, err := net.DialTCP("tcp", nil, port)
		if err != nil {
			t.Fatal(err)
		}
		owner.Want(150, "STOR /file")
		fmt.Fprint(data, "mine")
		data.Close()
		got := owner.Done()
		thief.Close()
		if content, _ := os.ReadFile(s.path("file")); string(content) != "mine" {
			t.Errorf("try %d: %q, %v", i, content, got)
		}
	}
}

// TestAttackPassivePortsArePredicted guesses the next passive port from the ones before: somebody at the client's address who can do
// that connects first.
func TestAttackPassivePortsArePredicted(t *testing.T) {
	t.Parallel()
	s := startServer(t, "[ftp]\npassive_ports = '28200-28999'\n")
	c := s.session(account)
	last, hits, tries := 0, 0, count(60, 600)
	seen := make(map[int]bool)
	for range tries {
		port, err := c.EPSV()
		if err != nil {
			t.Fatal(err)
		}
		if distance := port - last; last > 0 && distance >= -5 && distance <= 5 {
			hits++
		}
		last, seen[port] = port, true
	}
	if hits > tries/10 || len(seen) < tries/4 {
		t.Errorf("of %d ports %d were within 5 of the one before; %d are different", tries, hits, len(seen))
	}
	t.Logf("%d of %d were within 5 of the one before", hits, tries)
}
