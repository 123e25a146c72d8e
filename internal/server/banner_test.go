package server

import "testing"

func TestShellWord(t *testing.T) {
	for text, want := range map[string]string{"phoneacc": "phoneacc", "a-b_c.d@e": "a-b_c.d@e", "it's me": `'it'\''s me'`, "$x": "'$x'"} {
		if got := shellWord(text); got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
}
