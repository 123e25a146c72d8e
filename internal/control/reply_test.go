package control

import (
	"strings"
	"testing"
)

func TestReply(t *testing.T) {
	for _, tc := range []struct {
		name  string
		reply Reply
		want  string
	}{
		{"one line", Reply{Code: 257, Text: `"/a" locked`}, "257 \"/a\" locked\r\n"},
		{"no text", Reply{Code: 200}, "200 \r\n"},
		{"several lines", Reply{Code: 211, Text: "Features:", Lines: []string{" MDTM", " SIZE"}}, "211-Features:\r\n MDTM\r\n SIZE\r\n211 End\r\n"},
		{"with an end", Reply{Code: 250, Text: "a", Lines: []string{"b"}, End: "c"}, "250-a\r\nb\r\n250 c\r\n"},
		{"a line that looks like the end", Reply{Code: 211, Text: "a", Lines: []string{"211 End", ""}}, "211-a\r\n 211 End\r\n\r\n211 End\r\n"},
		{"line ends and NUL are not let through", Reply{Code: 550, Text: "a\r\n230 b\x00"}, "550 a??230 b?\r\n"},
		{"nor in the other lines", Reply{Code: 211, Text: "\n", Lines: []string{"\r\n230"}, End: "\n"}, "211-?\r\n??230\r\n211 ?\r\n"},
		{"names are bytes", Reply{Code: 257, Text: "\"/\xff\xfe\""}, "257 \"/\xff\xfe\"\r\n"},
	} {
		if got := string(tc.reply.AppendTo([]byte("before "))); got != "before "+tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestAReplyOfOneLineNeedsNoMemory(t *testing.T) {
	b := make([]byte, 0, 200)
	r := Reply{Code: 257, Text: strings.Repeat("x", 100)}
	if n := testing.AllocsPerRun(100, func() { b = r.AppendTo(b[:0]) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestReplyCodes(t *testing.T) {
	for line, code := range map[string]int{
		"150 begins": 150, "226": 226, "211-Status": 211, "1234": 123, "no code": 0, "12": 0, "": 0, " 211 x": 0,
	} {
		if got, _ := replyCode([]byte(line)); got != code {
			t.Errorf("%q: %d", line, got)
		}
	}
}

func TestTheBufferOfAnIdleConnectionIsSmall(t *testing.T) {
	in := input{limit: 8 << 10}
	for range 40 {
		n := copy(in.space(), strings.Repeat("NOOP\r\n", 1000))
		in.added(n)
	}
	if len(in.buf) < 32<<10 || len(in.buf) > inputMax {
		t.Errorf("read ahead: %d", len(in.buf))
	}
	for ok := true; ok; {
		_, _, ok = in.next()
	}
	in.consume(in.w - in.r)
	if n := len(in.space()); n > inputSize {
		t.Errorf("idle: %d", n)
	}
}
