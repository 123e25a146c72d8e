package main

import (
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/config"
)

func TestTheConfigurationPage(t *testing.T) {
	const example = "# What it is.\n#\n#   a-command\n\n# A key.\nlisten = []\n\n# The intro of a sample.\n#\n# [[account]]\n# # The name.\n# name = \"a\"\n#\n" +
		"# # .dotted\n# home = \"/\"\n\n[[lock]]\n# A glob, such as \\d.\nmatch = \"x\"\n\n[[lock]]\nmatch = \"y\"\n"
	const want = ".TH FTPLOCKD.TOML 5 \"\" ftplockd ftplockd\n.SH NAME\nftplockd.toml \\- configuration of ftplockd\n.SH DESCRIPTION\n" +
		"What it is.\n\n  a\\-command\n.PP\n.TP\n\\fBlisten = []\\fR\nA key.\n" +
		".SH [[account]]\nThe intro of a sample.\n\n.TP\n\\fBname = \"a\"\\fR\nThe name.\n.TP\n\\fBhome = \"/\"\\fR\n\\&.dotted\n" +
		".SH [[lock]]\n.TP\n\\fBmatch = \"x\"\\fR\nA glob, such as \\ed.\n" +
		".SH FILES\n/etc/ftplockd/ftplockd.toml\n.SH SEE ALSO\n.BR ftplockd (8)\n"
	if got := string(configurationPage([]byte(example))); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	page := string(configurationPage(config.Example()))
	for _, line := range []string{".SH [tls]", `\fBlisten = [`, `\fBsession_reuse = `, ".SH [[account]]", `\fBmax_locks = `, ".SH [[hook]]", ".SH [[lock]]", `\fBautomatic = `} {
		if n := strings.Count(page, "\n"+line); n != 1 {
			t.Errorf("%q is in the page %d times, want once", line, n)
		}
	}
}
