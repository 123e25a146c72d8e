package integration

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// TestAttackConnectionsThatNeverLogIn fills the server with connections that are silent, or speak without logging in.
func TestAttackConnectionsThatNeverLogIn(t *testing.T) {
	t.Parallel()
	s := startServer(t, "[ftp]\nmax_connections = 40\nlogin_timeout = '6s'\n")
	harmless := s.session(account)
	var opened []net.Conn
	refused := 0
	for range count(60, 2000) {
		conn, err := net.Dial("tcp", s.v4)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(patience))
		var greeting [512]byte
		n, _ := conn.Read(greeting[:])
		if !strings.HasPrefix(string(greeting[:n]), "220") {
			refused++
			continue
		}
		opened = append(opened, conn)
	}
	if len(opened) > 20 {
		t.Errorf("%d connections that are not logged in, of 40 at most", len(opened))
	}
	harmless.served("silent connections")
	// NOOP renews nothing.
	ends := time.Now().Add(patience)
	for _, conn := range opened {
		for {
			fmt.Fprint(conn, "NOOP\r\n")
			if _, err := conn.Read(make([]byte, 512)); err != nil {
				break
			}
			if time.Now().After(ends) {
				t.Fatal("a connection that says NOOP is still there long after its login_timeout")
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	s.session(account).served("after the silent connections")
	t.Logf("%d were let in, %d refused", len(opened), refused)
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
