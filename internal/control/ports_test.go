package control

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

func TestAPortBelongsToItsClient(t *testing.T) {
	c := serve(t).login()
	c.play("epsv")
	from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	var strangers []net.Conn
	for i := range 61 { // they do not fill the port's queue
		if i == 60 {
			c.play("> STOR x")
		}
		stranger, err := from.Dial("tcp", c.port)
		if err != nil {
			t.Skip(err)
		}
		strangers = append(strangers, stranger)
	}
	for _, stranger := range strangers {
		_ = stranger.SetReadDeadline(time.Now().Add(patience))
		if n, err := stranger.Read(make([]byte, 1)); n > 0 || err == nil || os.IsTimeout(err) {
			t.Errorf("a stranger's connection: %d, %v", n, err)
		}
		stranger.Close()
	}
	c.play("data; < 150; < 226")
}

// A port and the account's share of the ports are free again after each use.
func TestPortsAreFreeAgain(t *testing.T) {
	for name, transcript := range map[string]string{
		"EPSV":                   "epsv; data; > STOR x; < 150; < 226",
		"ABOR":                   "> ABOR; < 226",
		"QUIT":                   "> QUIT; < 221",
		"hang-up":                "close",
		"reset":                  "reset",
		"kick":                   "kick",
		"transfer":               "data; > RETR x; < 150; < 226",
		"PORT":                   "> PORT 127,0,0,1,200,1; < 250",
		"time-out, refused STOR": "> STOR x; < 550; > NOOP; < 250; timeout",
		"time-out":               "timeout; > STOR x; < 425; > NOOP; < 250; > STOR x; < 425 use PASV",
	} {
		t.Run(name, func(t *testing.T) {
			port := freePort(t)
			s := serve(t, func(o *setup) { o.first, o.last = port, port })
			first, late := s.login(), s.login()
			first.lib.refuses = strings.Contains(name, "refused")
			first.play("epsv; settled") // the port is claimed after the reply that contains it
			late.play("> EPSV; < 425 your account has half; > STOR x; < 425 use PASV")
			as := func(account string) {
				late.lib.mkd = func(*Command) { late.lib.conn.LogIn(account) }
				late.play("> MKD a; < 250")
			}
			as("another")
			late.play("> EPSV; < 425 no port is free; > NOOP; < 250")
			as("user")
			first.play(transcript)
			late.until("the port is free", func() bool { return late.lib.s.ports.reserve("user") })
			s.ports.mu.Lock()
			s.ports.unreserveLocked("user")
			s.ports.mu.Unlock()
			late.play("epsv; data; > STOR y; < 150; < 226")
		})
	}
}

// The copy that APPE begins with may take longer than a port waits, and the data connection has come.
func TestAPortStaysOpenWhileATransferIsBeingOpened(t *testing.T) {
	c := serve(t).login()
	c.lib.onOpen = func() {
		if port := c.lib.conn.port; port.timer.Stop() { // it would have run out
			_ = port.Close()
		}
	}
	c.play("epsv; data; > STOR x; < 150; < 226")
}

// The range may end at the last port.
func TestAnOpenPortIsNotOfferedAgain(t *testing.T) {
	ports := NewPorts(PortOptions{Range: func() (uint16, uint16) { return 65533, 65535 }})
	seen := map[int]bool{}
	for len(ports.open) < 3 {
		exposed, listened, ok := ports.FetchNext()
		if !ok || exposed != listened || seen[exposed] || exposed < 65533 || exposed > 65535 {
			t.Fatalf("%d, %d, %v, seen: %v", exposed, listened, ok, seen)
		}
		seen[exposed] = true
		ports.open[uint16(exposed)] = &Port{}
	}
	if _, _, ok := ports.FetchNext(); ok {
		t.Error("an open port was offered")
	}
}
