package main

import (
	"fmt"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
	"github.com/ftplockd/ftplockd/internal/status"
)

func TestPrintableReplacesControlCharacters(t *testing.T) {
	if got := printable("é a\x1b[31m\u009b\u2028\u202eb"); got != "é a?[31m???b" {
		t.Errorf("%q", got)
	}
}

func TestLocksNamesTheChangesOfAJob(t *testing.T) {
	for want, l := range map[string]status.Lock{"-": {}, "no changes yet": {Automatic: true}, "changes: 2, last /x": {Automatic: true, Files: 2, LastFile: "/x"}} {
		if got := changesOf(l); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestBreakTakesATokenAsADecimalNumber(t *testing.T) {
	r := startServer(t, "")
	session := r.login()
	tokens := make(map[string]string) // names by token
	for i := range 12 {
		name := fmt.Sprintf("/locks/%d", i)
		tokens[fmt.Sprint(harness.Token(session.Want(257, "MKD "+name)))] = name
	}
	if tokens["8"] == "" || tokens["10"] == "" {
		t.Fatal(tokens)
	}
	for _, token := range []string{"0", "00", "-1", "0x8", "8.0", "eight", ""} {
		r.refuses(exitUsage, "is no token", "break", tokens["8"], "--token", token)
	}
	r.refuses(exitFailure, "not held with token 10", "break", tokens["8"], "--token", "010")
	r.expect("broken", "break", tokens["10"], "--token", "010")
	r.expect(tokens["8"]+" ", "locks")
	r.expect("broken", "break", tokens["8"]) // without a terminal there is no question
	r.refuses(exitFailure, "not held", "break", tokens["8"])
}
