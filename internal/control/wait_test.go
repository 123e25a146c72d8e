package control

import (
	"strings"
	"testing"
	"time"
)

// waits makes an MKD of the client wait until grant is called or the client withdraws it. polled is called after each poll.
func (c *client) waits(polled func()) {
	c.lib.mkd = func(cmd *Command) {
		c.began <- struct{}{}
		err := cmd.Wait(func() bool {
			granted := c.granted.Load()
			polled()
			return granted
		})
		if err != nil {
			c.h.note("withdrawn")
			cmd.Reply(Reply{Code: 550, Text: "withdrawn"})
			return
		}
		cmd.Lost(func() { c.h.note("lost") })
		cmd.Reply(Reply{Code: 257, Text: `"/a" granted`})
	}
}

func (c *client) grant() {
	c.granted.Store(true)
	c.lib.conn.Wake()
}

func TestWaiting(t *testing.T) {
	for _, tc := range []struct{ name, transcript, notes string }{
		{"granted", "> MKD a; begun; wake; wake; grant; < 257 \"/a\" granted; > NOOP; < 250; > QUIT; < 221", "ended: quit"},
		{"granted before it waits, and a line has come after it", "grant; >> MKD a\r\nQUIT\r\n; < 257; < 221", "ended: quit"},
		{"granted between the poll and the wait", "> MKD a; < 257; > QUIT; < 221", "ended: quit"},
		{"withdrawn by a line, which is executed", "> MKD a; begun; > XPWD; < 550 withdrawn; < 250; > QUIT; < 221", "withdrawn; ended: quit"},
		{"withdrawn by a pipelined line, and by a wrong one", ">> MKD a\r\nMKD b\r\n \r\n; < 550 withdrawn; < 550 withdrawn; < 500; > QUIT; < 221",
			"withdrawn; withdrawn; ended: quit"},
		{"withdrawn by QUIT of a client that hangs up", "> MKD a; begun; > QUIT; half-close; < 550 withdrawn; < 221", "withdrawn; ended: quit"},
		{"not withdrawn by half a line", ">> MKD a\r\nNO; begun; grant; < 257; >> OP\r\n; < 250; > QUIT; < 221", "ended: quit"},
		{"withdrawn by EOF", "> MKD a; begun; half-close; < 550 withdrawn; end", "withdrawn; ended: closed by the client"},
		{"withdrawn by a reset", "> MKD a; begun; reset", "withdrawn; ended: reset"},
		{"withdrawn by a kick", "> MKD a; begun; kick go; < 550 withdrawn; < 421 go; end", "withdrawn; ended: kicked"},
		{"withdrawn by the server's stop", "> MKD a; begun; stop now; < 550 withdrawn; < 421 now", "withdrawn; ended: server stops"},
	} {
		for _, secure := range []bool{false, true} {
			name := tc.name
			if secure {
				name += ", tls"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				c := serve(t, withTLS).dial()
				if secure {
					c.startTLS(c.TCP)
				}
				c.logIn()
				if c.waits(func() {}); strings.Contains(tc.name, "between") {
					c.waits(c.grant)
				}
				c.play(tc.transcript)
				<-c.h.over
				if got := c.h.notes(); got != tc.notes {
					t.Errorf("got %q, want %q", got, tc.notes)
				}
			})
		}
	}
}

// A client that has hung up gets no lock.
func TestAWaiterThatHasLeftIsWithdrawn(t *testing.T) {
	c := serve(t).login()
	c.waits(func() {})
	wait := c.lib.mkd
	c.lib.mkd = func(cmd *Command) {
		c.until("the client has gone", c.lib.conn.Gone)
		c.grant()
		wait(cmd)
	}
	c.play("> MKD a; half-close; < 550 withdrawn; end")
}

// If a client hangs up while its MKD is granted, the MKD is withdrawn, or the grant is undone.
func TestAWaiterThatHangsUpIsWithdrawnOrUndone(t *testing.T) {
	s := serve(t)
	for i := range 100 {
		c := s.login()
		c.waits(func() {})
		c.play("> MKD a; begun")
		go c.play("half-close; close")
		for until := time.Now().Add(time.Duration(i) * time.Microsecond); time.Now().Before(until); {
		}
		c.grant()
		c.until("the connection is closed", func() bool { return s.connected() == 0 })
		if got := c.h.notes(); strings.Contains(got, "withdrawn") == strings.Contains(got, "lost") {
			t.Fatal(got)
		}
	}
}
