package control

import (
	"net"
	"os"
	"testing"
	"time"
)

func TestAPortBelongsToItsClient(t *testing.T) {
	c := serve(t).login()
	addr := c.epsv()
	from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	var strangers []net.Conn
	for i := range 61 { // which do not fill the port up
		if i == 60 {
			c.send("STOR x\r\n")
		}
		stranger, err := from.Dial("tcp", addr)
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
	data := c.data(addr)
	c.expect("150 ")
	_ = data.Close()
	c.expect("226 ")
}

// A port and the account's share of the ports are free again after each use.
func TestPortsAreFreeAgain(t *testing.T) {
	transfer := func(c *client, addr, line string) {
		_ = c.data(addr).Close()
		c.play("> "+line, "< 150 ", "< 226 ")
	}
	for name, free := range map[string]func(c *client, addr string){
		"EPSV":     func(c *client, _ string) { transfer(c, c.epsv(), "STOR x") },
		"ABOR":     func(c *client, _ string) { c.play("> ABOR", "< 226 ") },
		"QUIT":     func(c *client, _ string) { c.play("> QUIT", "< 221 ") },
		"hang-up":  func(c *client, _ string) { _ = c.tcp.Close(); <-c.h.over },
		"reset":    func(c *client, _ string) { reset(c.tcp); <-c.h.over },
		"kick":     func(c *client, _ string) { c.lib.conn.Kick(Reply{}); <-c.h.over },
		"transfer": func(c *client, addr string) { transfer(c, addr, "RETR x") },
		"PORT":     func(c *client, _ string) { c.play("> PORT 127,0,0,1,200,1", "< 250 ") },
		"time-out behind a refusal": func(c *client, addr string) {
			c.settled() // the port is claimed behind the reply that names it
			c.lib.refuses = true
			port := c.lib.conn.port
			c.play("> STOR x", "< 550 ", "> NOOP", "< 250 ")
			if !port.timer.Reset(0) {
				c.t.Error("behind a refusal the port waits for ever")
			}
		},
		"time-out": func(c *client, addr string) {
			c.settled()
			port := c.lib.conn.port
			port.timer.Reset(0)
			c.until("the port is closed", func() bool {
				port.ports.mu.Lock()
				defer port.ports.mu.Unlock()
				return port.ports.open[port.number] != port
			})
			c.play("> STOR x", "< 425 ", "> NOOP", "< 250 ", "> STOR x", "< 425 use PASV")
		},
	} {
		t.Run(name, func(t *testing.T) {
			port := freePort(t)
			s := serve(t, portsBetween(port, port))
			first, late := s.login(), s.login()
			addr := first.epsv()
			late.play("> EPSV", "< 425 your account has half", "> STOR x", "< 425 use PASV")
			as := func(account string) {
				late.lib.mkd = func(*Command) { late.lib.conn.LogIn(account) }
				late.play("> MKD a", "< 250 ")
			}
			as("another")
			late.play("> EPSV", "< 425 no port is free", "> NOOP", "< 250 ")
			as("user")
			free(first, addr)
			late.until("the port is free", func() bool { return late.lib.s.ports.take("user") })
			s.ports.mu.Lock()
			s.ports.giveBackLocked("user")
			s.ports.mu.Unlock()
			transfer(late, late.epsv(), "STOR y")
		})
	}
}

// The copy that APPE begins with may take longer than a port waits, and the data connection has come.
func TestAPortStaysOpenWhileATransferIsBeingOpened(t *testing.T) {
	c := serve(t).login()
	data := c.data(c.epsv())
	c.lib.onOpen = func() {
		if port := c.lib.conn.port; port.timer.Stop() { // it would have run out
			_ = port.Close()
		}
	}
	c.send("STOR x\r\n")
	c.expect("150 ")
	_ = data.Close()
	c.expect("226 ")
}

// The range may end at the last port.
func TestAPortThatIsOpenIsOfferedToNobodyElse(t *testing.T) {
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
		t.Error("a port that is open was offered")
	}
}
