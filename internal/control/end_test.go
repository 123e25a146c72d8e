package control

import (
	"io"
	"strings"
	"testing"
	"time"
)

// answers sets the reply to MKD, and notes its loss. before is called before the reply.
func (c *client) answers(text string, before func()) {
	c.lib.mkd = func(cmd *Command) {
		before()
		cmd.Say(Reply{Code: 257, Text: text})
		cmd.Lost(func() { c.h.note("lost") })
	}
}

// untilGone waits until Gone returns true.
func (c *client) untilGone() { c.until("the client has gone", c.lib.conn.Gone) }

// fill makes the server write until the client's receive buffer is full, but not its own send buffer.
func (c *client) fill() {
	_ = c.tcp.SetReadBuffer(4 << 10)
	_ = c.lib.conn.wire.Conn.(interface{ SetWriteBuffer(int) error }).SetWriteBuffer(1 << 20)
	c.lib.replies = map[string]string{"PWD": `257 "` + strings.Repeat("x", 100<<10) + `"`}
	c.send("PWD\r\nPWD\r\nPWD\r\n")
	c.settled()
	if c.lib.conn.peer().unacked == 0 {
		c.t.Fatal("all was acknowledged")
	}
}

// TestLost ends connections after a 257 in each way, and checks whether the grant was undone.
func TestLost(t *testing.T) {
	unread := func(c *client) { // the 257 has arrived, and the program does not read it
		before := c.lib.conn.wire.sent.Load()
		c.send("MKD a\r\n")
		c.until("the reply is written", func() bool { return c.lib.conn.wire.sent.Load() > before })
	}
	for _, tc := range []struct {
		name string
		run  func(c *client)
		lost int
		why  Reason
	}{
		{"reset at once", func(c *client) { c.play("> MKD a", "< 257 "); reset(c.tcp) }, 0, ReasonReset},
		{"reset after the acknowledgement", func(c *client) {
			c.play("> MKD a", "< 257 ")
			c.until("the reply is acknowledged", func() bool { return c.lib.conn.peer().unacked == 0 })
			reset(c.tcp)
		}, 0, ReasonReset},
		{"reset after another command", func(c *client) { c.play("> MKD a", "< 257 ", "> NOOP", "< 250 "); reset(c.tcp) }, 0, ReasonReset},
		{"reset after half a command", func(c *client) { c.play("> MKD a", "< 257 "); c.send("NO"); c.settled(); reset(c.tcp) }, 0, ReasonReset},
		{"reset after two pipelined grants", func(c *client) { c.play(">> MKD a\r\nMKD a\r\n", "< 257 ", "< 257 "); reset(c.tcp) }, 0, ReasonReset},
		{"reset of a client whose window is full", func(c *client) {
			c.fill()
			unread(c)
			reset(c.tcp)
		}, 1, ReasonReset},
		{"reset before the reply", func(c *client) {
			begun := make(chan struct{})
			c.answers("granted", func() { close(begun); c.untilGone() })
			c.send("MKD a\r\n")
			<-begun
			reset(c.tcp)
		}, 1, ReasonReset},
		{"quit", func(c *client) { c.play("> MKD a", "< 257 ", "> QUIT", "< 221 ") }, 0, ReasonQuit},
		{"closed", func(c *client) { c.play("> MKD a", "< 257 "); _ = c.tcp.Close() }, 0, ReasonEOF},
		{"half-closed before the reply", func(c *client) {
			c.answers("granted", c.untilGone)
			c.send("MKD a\r\n")
			_ = c.tcp.CloseWrite()
			c.expect("257 ")
			_ = c.tcp.Close()
		}, 0, ReasonEOF},
		{"closed before the reply", func(c *client) {
			c.answers("granted", c.untilGone)
			c.send("MKD a\r\n")
			_ = c.tcp.Close()
		}, 1, ReasonEOF},
		{"half-closed, and closed without reading the reply", func(c *client) {
			before := c.lib.conn.wire.sent.Load()
			c.send("MKD a\r\n")
			_ = c.tcp.CloseWrite()
			c.until("the reply is acknowledged", func() bool {
				return c.lib.conn.wire.sent.Load() > before && c.lib.conn.peer().unacked == 0
			})
			_ = c.tcp.Close()
		}, 1, ReasonEOF},
		{"half-closed behind the reply, and closed without reading it", func(c *client) {
			unread(c)
			_ = c.tcp.CloseWrite()
			_ = c.tcp.Close()
		}, 1, ReasonEOF},
		{"closed without reading the reply to a command behind the grant", func(c *client) {
			c.answers("granted", c.untilGone)
			c.send("MKD a\r\nNOOP\r\n")
			_ = c.tcp.CloseWrite()
			var first [1]byte // the grant and the other reply are unread together, but for this
			if _, err := io.ReadFull(c.tcp, first[:]); err != nil {
				c.t.Fatal(err)
			}
			c.until("the replies are acknowledged", func() bool { return c.lib.conn.peer().unacked == 0 })
			_ = c.tcp.Close()
		}, 0, ReasonEOF},
		{"kicked after the acknowledgement", func(c *client) {
			c.play("> MKD a", "< 257 ")
			c.lib.conn.Kick(Reply{Code: 421})
		}, 0, ReasonKicked},
		{"kicked, of a client that did not read it", func(c *client) {
			c.fill()
			unread(c)
			c.lib.conn.Kick(Reply{Code: 421})
		}, 1, ReasonKicked},
		{"EOF of a client that did not read it", func(c *client) {
			c.fill()
			c.send("MKD a\r\n")
			_ = c.tcp.CloseWrite()
		}, 1, ReasonEOF},
		{"a client that never read it", func(c *client) {
			c.answers(bigPath, func() {})
			c.send("MKD a\r\n")
		}, 1, ReasonSlow},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			write, ack := patience, time.Hour
			if strings.Contains(tc.name, "did not read") {
				ack = 100 * time.Millisecond
			}
			if strings.Contains(tc.name, "never read") {
				write = 50 * time.Millisecond
			}
			s := serve(t, timeouts(write, ack))
			c := s.login()
			c.answers("granted", func() {})
			tc.run(c)
			c.h.endedWith(t, tc.why)
			c.until("the connection is closed", func() bool { return s.connected() == 0 })
			if lost := strings.Count(c.h.notes(), "lost"); lost != tc.lost {
				t.Errorf("%d grants were undone, want %d", lost, tc.lost)
			}
		})
	}
}

// bigPath is longer than the socket's buffers; a quoted path is sent whole.
var bigPath = `"` + strings.Repeat("x", 20<<20) + `"`

func TestAClientThatDoesNotRead(t *testing.T) {
	big := bigPath
	t.Run("does not keep Kick waiting", func(t *testing.T) {
		c := serve(t, timeouts(time.Hour, time.Second)).login()
		c.answers(big, func() {})
		c.send("MKD a\r\n")
		c.until("the socket is full", func() bool { return c.lib.conn.peer().unacked > 0 })
		c.lib.conn.Kick(Reply{Code: 421})
		c.h.endedWith(t, ReasonKicked)
	})
	t.Run("does not keep the last reply waiting", func(t *testing.T) {
		c := serve(t, timeouts(time.Hour, time.Second)).login()
		socket := c.lib.conn.wire.Conn
		_ = socket.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		_, _ = io.WriteString(socket, big) // as much as it takes
		c.lib.conn.Kick(Reply{Code: 421})
		c.h.endedWith(t, ReasonKicked)
	})
	t.Run("but reads later", func(t *testing.T) {
		c := serve(t).login()
		c.answers(big, func() {})
		c.play("> MKD a", "> NOOP")
		if line, err := c.read(); err != nil || line != "257 "+big {
			t.Errorf("%d bytes, %v", len(line), err)
		}
		c.play("< 250 ", "> NOOP", "< 250 ")
	})
}
