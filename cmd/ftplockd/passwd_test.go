package main

import (
	"strings"
	"testing"
)

func TestReadLine(t *testing.T) {
	longest := strings.Repeat("x", maxPassword)
	for in, want := range map[string]string{
		"secret": "secret", "secret\n": "secret", "secret\r\n": "secret",
		" two words \n": " two words ", "": "", "\n": "", longest: longest,
	} {
		if got, err := readLine(strings.NewReader(in)); err != nil || got != want {
			t.Errorf("%.20q: %.20q %v", in, got, err)
		}
	}
	for _, in := range []string{"a\nb", "a\n\n", longest + "x"} { // a truncated one would be another password
		if got, err := readLine(strings.NewReader(in)); err == nil {
			t.Errorf("%.20q: %.20q", in, got)
		}
	}
}
