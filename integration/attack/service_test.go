package attack

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// TestPasswordsAreGuessed tries passwords over many connections.
func TestPasswordsAreGuessed(t *testing.T) {
	s := start(t, "")
	s.login("owner") // has logged in from this address before
	begun, tries := time.Now(), 0
	replies := make(chan string)
	for i := range times(20, 200) {
		go func() {
			conn, err := net.Dial("tcp", s.address)
			if err != nil {
				replies <- err.Error()
				return
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(3 * time.Second))
			buffer := make([]byte, 512)
			conn.Read(buffer)
			all := ""
			for j := range 5 {
				fmt.Fprintf(conn, "USER boss\r\nPASS guess-%d-%d\r\n", i, j)
				for range 2 {
					n, err := conn.Read(buffer)
					if err != nil {
						replies <- all
						return
					}
					all += string(buffer[:n])
				}
			}
			replies <- all
		}()
	}
	for range times(20, 200) {
		got := <-replies
		tries += strings.Count(got, "530") + strings.Count(got, "421")
		if strings.Contains(got, "230") {
			t.Errorf("a guess was right: %q", got)
		}
	}
	rate := float64(tries) / time.Since(begun).Seconds()
	if rate > 20 {
		t.Errorf("%d guesses in %v: %.0f a second", tries, time.Since(begun), rate)
	}
	t.Logf("%d guesses, %.1f a second", tries, rate)
}

// TestNamesOfAccounts compares how long the server takes to refuse an account that exists, and one that does not.
func TestNamesOfAccounts(t *testing.T) {
	s := start(t, "[[account]]\nname = 'far'\npassword = '$2y$10$abcdefghijklmnopqrstuuABCDEFGHIJKLMNOPQRSTUVWXYZ01234'\nnetworks = ['192.0.2.0/24']\n")
	for _, account := range []string{"owner", "nobody", "far"} {
		c := s.connect()
		if got := c.say("USER " + account); !strings.HasPrefix(got, "331") {
			t.Errorf("USER %s: %q", account, got)
		}
		if got := c.say("PASS wrong"); got != "530 login incorrect\r\n" {
			t.Errorf("PASS for %s: %q", account, got)
		}
	}
}

// TestSomebodyElsesDataConnection connects to the passive port of somebody else from another address.
func TestSomebodyElsesDataConnection(t *testing.T) {
	s := start(t, "")
	owner := s.login("owner")
	owner.must("200", "TYPE I")
	for i := range times(20, 200) {
		m := extended.FindStringSubmatch(owner.say("EPSV"))
		if m == nil {
			t.Fatal("no port")
		}
		port := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: number(m[1])}
		thief, err := net.DialTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}, port)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(thief, "forged")
		thief.CloseWrite()
		data, err := net.DialTCP("tcp", nil, port)
		if err != nil {
			t.Fatal(err)
		}
		owner.must("150", "STOR /file")
		fmt.Fprint(data, "mine")
		data.Close()
		got := owner.reply()
		thief.Close()
		if content, _ := os.ReadFile(s.path("files/file")); string(content) != "mine" {
			t.Errorf("try %d: %q, %s", i, content, got)
		}
	}
}

// TestPassivePortsAreForetold guesses the next passive port from the ones before: somebody at the client's address who can do
// that connects first.
func TestPassivePortsAreForetold(t *testing.T) {
	s := start(t, "[ftp]\npassive_ports = '28200-28999'\n")
	c := s.login("owner")
	last, hits, tries := 0, 0, times(60, 600)
	seen := make(map[int]bool)
	for range tries {
		m := extended.FindStringSubmatch(c.say("EPSV"))
		if m == nil {
			t.Fatal("no port")
		}
		port := number(m[1])
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
