package config

import (
	"os"
	"path/filepath"
	"testing"
)

func TestStateInReadsAFileWithErrors(t *testing.T) {
	for text, want := range map[string]string{
		"state = '/s'\nroot = /r":                "/s",
		"\xef\xbb\xbf\"state\" = \"/\\u0073\"\n": "/s",
		"rot = 1\nstate = '/s'\n[ftp]\nx = 1":    "/s",
		"root = /r\nstate = '/s'":                "",
		"[ftp]\nstate = '/s'":                    "",
		"state.x = '/s'":                         "",
		"state = 7":                              "",
		"":                                       "",
	} {
		file := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := StateIn(file); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := StateIn("none"); got != "" {
		t.Errorf("without a file: %q", got)
	}
}
