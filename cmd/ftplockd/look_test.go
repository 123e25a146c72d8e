package main

import "testing"

func TestNamesOnATerminalMoveNothing(t *testing.T) {
	if got := printable("é a\x1b[31m\u009b\u2028\u202eb"); got != "é a?[31m???b" {
		t.Errorf("%q", got)
	}
}
