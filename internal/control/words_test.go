package control

import (
	"strings"
	"testing"
)

func TestTheDriversReplyReplacesTheLibrarys(t *testing.T) {
	const several = "250-a\r\n b\r\n250 c"
	for _, tc := range []struct {
		name    string
		line    string
		library string
		replies []Reply
		want    string
	}{
		{"nothing", "MKD a", "257 made", nil, "257 made"},
		{"one line", "MKD a", "257 made", []Reply{{Code: 257, Text: "mine"}}, "257 mine"},
		{"another code", "MKD a", "550 no", []Reply{{Code: 450, Text: "later"}}, "450 later"},
		{"several lines", "MKD a", "257 made", []Reply{{Code: 257, Text: "a", Lines: []string{" b", "257 c"}, End: "d"}}, "257-a\r\n b\r\n 257 c\r\n257 d"},
		{"the last call counts", "MKD a", "257 made", []Reply{{Code: 257, Text: "first"}, {Code: 257, Text: "second"}}, "257 second"},
		{"a preliminary one is for transfers", "MKD a", "257 made", []Reply{{Code: 150, Text: "opening"}}, "257 made"},
		{"line ends", "MKD a", "257 made", []Reply{{Code: 257, Text: "a\r\n220 b\x00"}}, "257 a??220 b?"},
		{"one line for several", "MLST a", several, []Reply{{Code: 250, Text: "mine"}}, "250 mine"},
		{"several lines of the library's", "MLST a", several, nil, several},
		{"the last line only", "HASH a", several, nil, "250 c"},
		{"a panic in the driver", "MKD a", "500 Unhandled internal error: a secret", []Reply{{Code: 257, Text: "made"}}, "451 internal error"},
		{"the text of a panic in a name", "MKD a", "550 Unhandled internal error: x", nil, "550 Unhandled internal error: x"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := serve(t).login()
			verb, _, _ := strings.Cut(tc.line, " ")
			c.lib.replies = map[string]string{verb: tc.library}
			c.h.onBegin = func(cmd *Command) {
				cmd.conn = c.lib.conn
				for _, r := range tc.replies {
					if cmd.Verb == verb {
						cmd.Reply(r)
					}
				}
			}
			c.play("> " + tc.line + "; > PWD") // the reply is that of the command only
			for _, want := range append(strings.Split(tc.want, "\r\n"), "250 done") {
				if got, err := c.Line(); got != want {
					t.Errorf("got %q, %v; want %q", got, err, want)
				}
			}
		})
	}
}

func TestA421ClosesTheConnection(t *testing.T) {
	s := serve(t)
	for i := range 20 {
		c := s.login()
		if i%2 == 0 {
			c.lib.mkd = func(cmd *Command) { cmd.Reply(Reply{Code: 421, Text: "go", Lines: []string{"away"}, End: "now"}) }
			c.play(">> MKD a\r\nMKD b\r\n; < 421-go; < away; < 421 now")
		} else {
			c.lib.onOpen = func() { c.lib.conn.Command().Reply(Reply{Code: 421, Text: "go"}) }
			c.play("epsv; data; >> STOR x\r\nMKD b\r\n; < 150; < 421 go")
		}
		c.expectEOF()
		c.h.endedWith(t, ReasonClosed)
		if got := c.h.executed(); strings.Contains(got, "MKD b") {
			t.Errorf("executed: %s", got)
		}
	}
}

func TestAnIncompleteLineIsNeverExecuted(t *testing.T) {
	for _, end := range []string{"half-close", "close", "settled; reset", "settled; kick", "settled; stop"} {
		t.Run(end, func(t *testing.T) {
			c := serve(t).login()
			c.play(">> MKD whole\r\nMKD half; < 250; " + end)
			<-c.h.over
			if got := c.h.executed(); strings.Contains(got, "half") {
				t.Errorf("executed: %s", got)
			}
		})
	}
}
