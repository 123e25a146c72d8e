package control

import (
	"io"
	"strings"
	"testing"
	"time"
)

// answers sets the reply to MKD, and records its loss. The MKD of a late client waits until the client has hung up.
func (c *client) answers(text string, late bool) {
	c.lib.mkd = func(cmd *Command) {
		c.began <- struct{}{}
		if late {
			c.until("the client has gone", c.lib.conn.Gone)
		}
		cmd.Reply(Reply{Code: 257, Text: text})
		cmd.Lost(func() { c.h.note("lost") })
	}
}

// fill makes the server write until the client's receive buffer is full, but not its own send buffer.
func (c *client) fill() {
	_ = c.TCP.SetReadBuffer(4 << 10)
	_ = c.lib.conn.wire.Conn.(interface{ SetWriteBuffer(int) error }).SetWriteBuffer(1 << 20)
	c.lib.replies = map[string]string{"PWD": `257 "` + strings.Repeat("x", 100<<10) + `"`}
	c.send("PWD\r\nPWD\r\nPWD\r\n")
	c.settled()
	if c.lib.conn.peer().unacked == 0 {
		c.t.Fatal("all was acknowledged")
	}
}

// bigPath is longer than the socket's buffers; a quoted path is sent whole.
var bigPath = `"` + strings.Repeat("x", 20<<20) + `"`

// TestLost ends connections after a 257 in each way, and checks whether the grant was undone.
func TestLost(t *testing.T) {
	for _, tc := range []struct {
		name       string
		transcript string
		lost       int
		why        Reason
	}{
		{"reset at once", "> MKD a; < 257; reset", 0, ReasonReset},
		{"reset after the acknowledgement", "> MKD a; < 257; acknowledged; reset", 0, ReasonReset},
		{"reset after another command", "> MKD a; < 257; > NOOP; < 250; reset", 0, ReasonReset},
		{"reset after half a command", "> MKD a; < 257; >> NO; settled; reset", 0, ReasonReset},
		{"reset after two pipelined grants", ">> MKD a\r\nMKD a\r\n; < 257; < 257; reset", 0, ReasonReset},
		{"reset of a client whose window is full", "full; > MKD a; written; reset", 1, ReasonReset},
		{"late: reset before the reply", "> MKD a; begun; reset", 1, ReasonReset},
		{"quit", "> MKD a; < 257; > QUIT; < 221", 0, ReasonQuit},
		{"closed", "> MKD a; < 257; close", 0, ReasonEOF},
		{"late: half-closed before the reply", "> MKD a; half-close; < 257; close", 0, ReasonEOF},
		{"late: closed before the reply", "> MKD a; close", 1, ReasonEOF},
		{"half-closed, and closed without reading the reply", "> MKD a; half-close; written; acknowledged; close", 1, ReasonEOF},
		{"half-closed after the reply, and closed without reading it", "> MKD a; written; half-close; close", 1, ReasonEOF},
		// A part of the two replies is read: nothing proves that the grant is not.
		{"late: closed without reading the next reply", ">> MKD a\r\nNOOP\r\n; half-close; byte; acknowledged; close", 0, ReasonEOF},
		{"kicked after the acknowledgement", "> MKD a; < 257; acknowledged; kick", 0, ReasonKicked},
		{"kicked, of a client that did not read it", "full; > MKD a; written; kick", 1, ReasonKicked},
		{"EOF of a client that did not read it", "full; > MKD a; half-close", 1, ReasonEOF},
		{"a client that never read it", "> MKD a", 1, ReasonSlow},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			write, ack, reset, text := patience, time.Hour, 100*time.Millisecond, "granted"
			if strings.Contains(tc.name, "did not read") {
				ack = 100 * time.Millisecond
			}
			if strings.Contains(tc.name, "never read") {
				write, text = 50*time.Millisecond, bigPath
			}
			if strings.Contains(tc.name, "without reading") { // the reset comes, however late
				reset = time.Hour
			}
			s := serve(t, timeouts(write, ack), func(o *setup) { o.reset = reset })
			c := s.login()
			c.answers(text, strings.HasPrefix(tc.name, "late"))
			c.play(tc.transcript)
			c.h.endedWith(t, tc.why)
			c.until("the connection is closed", func() bool { return s.connected() == 0 })
			if lost := strings.Count(c.h.notes(), "lost"); lost != tc.lost {
				t.Errorf("%d grants were undone, want %d", lost, tc.lost)
			}
		})
	}
}

func TestAClientThatDoesNotRead(t *testing.T) {
	t.Run("does not delay Kick", func(t *testing.T) {
		c := serve(t, timeouts(time.Hour, time.Second)).login()
		c.answers(bigPath, false)
		c.send("MKD a\r\n")
		c.until("the socket is full", func() bool { return c.lib.conn.peer().unacked > 0 })
		c.play("kick")
		c.h.endedWith(t, ReasonKicked)
	})
	t.Run("does not delay the last reply", func(t *testing.T) {
		c := serve(t, timeouts(time.Hour, time.Second)).login()
		socket := c.lib.conn.wire.Conn
		_ = socket.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		_, _ = io.WriteString(socket, bigPath) // as much as it takes
		c.play("kick")
		c.h.endedWith(t, ReasonKicked)
	})
	t.Run("but reads later", func(t *testing.T) {
		c := serve(t).login()
		c.answers(bigPath, false)
		c.play("> MKD a; > NOOP")
		if line, err := c.Line(); err != nil || line != "257 "+bigPath {
			t.Errorf("%d bytes, %v", len(line), err)
		}
		c.play("< 250; > NOOP; < 250")
	})
}
