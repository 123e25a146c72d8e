package config

import "testing"

func TestNear(t *testing.T) {
	words := []string{"max_age", "max_idle", "match", "grace", "wait"}
	for word, want := range map[string]string{
		"max_age": "max_age", "maxage": "max_age", "MAX-AGE": "max_age", "mxa_age": "max_age",
		"mach": "match", "matches": "match", "wiat": "wait", "grcae": "grace",
		"x": "", "": "", "directories": "", "abc": "",
	} {
		if got := near(word, words); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}
