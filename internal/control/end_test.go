package control

import (
	"io"
	"strings"
	"testing"
	"time"
)

// answers makes MKD say a reply that notes when it is lost, after what is to happen before.
func (c *client) answers(text string, before func()) {
	c.lib.mkd = func(cmd *Command) {
		before()
		cmd.Say(Reply{Code: 257, Text: text})
		cmd.Lost(func() { c.h.note("lost") })
	}
}

// untilGone waits until the server knows that the client has hung up.
func (c *client) untilGone() { c.until("the client has gone", c.lib.conn.Gone) }

// fill makes the server write until the client's receive buffer is full, but not its own send buffer.
func (c *client) fill() {
	_ = c.tcp.SetReadBuffer(4 << 10)
	_ = c.lib.conn.wire.Conn.(interface{ SetWriteBuffer(int) error }).SetWriteBuffer(1 << 20)
	c.lib.replies = map[string]string{"PWD": "257 " + strings.Repeat("x", 100<<10)}
	c.send("PWD\r\nPWD\r\nPWD\r\n")
	c.settled()
	if !c.lib.conn.unacked() {
		c.t.Fatal("all was acknowledged")
	}
}

func TestLost(t *testing.T) {
	const lost = "lost; "
	for _, tc := range []struct {
		name string
		run  func(c *client)
		want string
	}{
		{"reset at once", func(c *client) { c.play("> MKD a", "< 257 "); reset(c.tcp) }, lost + "ended: reset"},
		{"reset after another command", func(c *client) { c.play("> MKD a", "< 257 ", "> NOOP", "< 250 "); reset(c.tcp) }, "ended: reset"},
		{"reset after a wrong command", func(c *client) { c.play("> MKD a", "< 257 ", "> ", "< 500 "); reset(c.tcp) }, "ended: reset"},
		{"reset after half a command", func(c *client) { c.play("> MKD a", "< 257 "); c.send("NO"); c.settled(); reset(c.tcp) }, lost + "ended: reset"},
		{"reset after a pipelined command", func(c *client) { c.play(">> MKD a\r\nNOOP\r\n", "< 257 ", "< 250 "); reset(c.tcp) }, lost + "ended: reset"},
		{"two of them", func(c *client) { c.play(">> MKD a\r\nMKD a\r\n", "< 257 ", "< 257 "); reset(c.tcp) }, lost + lost + "ended: reset"},
		{"quit", func(c *client) { c.play("> MKD a", "< 257 ", "> QUIT", "< 221 ") }, "ended: quit"},
		{"EOF", func(c *client) { c.play("> MKD a", "< 257 "); _ = c.tcp.Close() }, "ended: closed by the client"},
		{"half-closed before the reply", func(c *client) {
			c.answers("granted", c.untilGone)
			c.send("MKD a\r\n")
			_ = c.tcp.CloseWrite()
			c.expect("257 ")
		}, "ended: closed by the client"},
		{"closed before the reply", func(c *client) {
			c.answers("granted", c.untilGone)
			c.send("MKD a\r\n")
			_ = c.tcp.Close()
		}, lost + "ended: closed by the client"},
		{"reset before the reply", func(c *client) {
			begun := make(chan struct{})
			c.answers("granted", func() { close(begun); c.untilGone() })
			c.send("MKD a\r\n")
			<-begun
			reset(c.tcp)
		}, lost + "ended: reset"},
		{"kicked after it was acknowledged", func(c *client) {
			c.play("> MKD a", "< 257 ")
			c.lib.conn.Kick(Reply{Code: 421})
		}, "ended: kicked"},
		{"kicked, of a client that did not read it", func(c *client) {
			c.fill()
			c.send("MKD a\r\n")
			c.settled()
			c.lib.conn.Kick(Reply{Code: 421})
		}, lost + "ended: kicked"},
		{"EOF of a client that did not read it", func(c *client) {
			c.fill()
			c.send("MKD a\r\n")
			_ = c.tcp.CloseWrite()
		}, lost + "ended: closed by the client"},
		{"a client that never read it", func(c *client) {
			c.answers(strings.Repeat("x", 20<<20), func() {})
			c.send("MKD a\r\n")
		}, lost + "ended: did not read its replies"},
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
			c := serve(t, timeouts(write, ack)).login()
			c.answers("granted", func() {})
			tc.run(c)
			<-c.h.over
			if got := c.h.notes(); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestAClientThatDoesNotRead(t *testing.T) {
	big := strings.Repeat("x", 20<<20)
	t.Run("does not keep Kick waiting", func(t *testing.T) {
		c := serve(t, timeouts(time.Hour, time.Second)).login()
		c.answers(big, func() {})
		c.send("MKD a\r\n")
		c.until("the socket is full", c.lib.conn.unacked)
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
