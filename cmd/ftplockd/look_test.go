package main

import (
	"fmt"
	"strings"
	"testing"
)

func TestNamesOnATerminalMoveNothing(t *testing.T) {
	if got := printable("é a\x1b[31m\u009b\u2028\u202eb"); got != "é a?[31m???b" {
		t.Errorf("%q", got)
	}
}

func TestBreakTakesATokenAsADecimalNumber(t *testing.T) {
	r := startServer(t, "")
	say, _ := r.login()
	tokens := make(map[string]string) // names by token
	for i := range 12 {
		name := fmt.Sprintf("/locks/%d", i)
		_, token, _ := strings.Cut(say("MKD "+name), " token ")
		token, _, _ = strings.Cut(token, ",")
		tokens[token] = name
	}
	if tokens["8"] == "" || tokens["10"] == "" {
		t.Fatal(tokens)
	}
	for _, token := range []string{"0", "00", "-1", "0x8", "8.0", "eight", ""} {
		if _, errs, status := r.run("break", tokens["8"], "--token", token); status != exitUsage || !strings.Contains(errs, "is no token") {
			t.Errorf("%q: status %d: %s", token, status, errs)
		}
	}
	if _, errs, status := r.run("break", tokens["8"], "--token", "010"); status != exitFailure || !strings.Contains(errs, "not held with token 10") {
		t.Errorf("status %d: %s", status, errs)
	}
	r.expect("broken", "break", tokens["10"], "--token", "010")
	r.expect(tokens["8"]+" ", "locks")
}
