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

func TestSkipTelnet(t *testing.T) {
	for line, want := range map[string]string{
		"\xff\xf4\xff\xf2ABOR": "ABOR", "\xff\xf4\xf2ABOR": "ABOR", "\xff\xfb\x01\xff\xfe\x03NOOP": "NOOP",
		"\xff\xf1": "", "\xff": "", "\xff\xfb": "", "MKD caf\xff\xf4\xff": "MKD caf\xff\xf4\xff",
	} {
		if got := string(skipTelnet([]byte(line))); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

// The longest line that the library takes is passed on, and a longer one is answered.
func TestTheLongestLine(t *testing.T) {
	line := "CWD /" + strings.Repeat("x", maxLine-len("CWD /"))
	if pass, reply := ask(Options{}, line); pass != line+"\r\n" || reply != "" {
		t.Errorf("%d bytes, %q", len(pass), reply)
	}
	for _, more := range []int{1, 300 << 10} {
		pass, reply := ask(Options{}, line+strings.Repeat("x", more), "PWD")
		if pass != "PWD\r\n" || reply != "500 line too long\r\n" {
			t.Errorf("%d bytes more: %q, %q", more, pass, reply)
		}
	}
}
