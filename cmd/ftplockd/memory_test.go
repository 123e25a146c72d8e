package main

import (
	"runtime/debug"
	"testing"
)

func TestTheCollectorIsTunedUnlessGOGCIsSet(t *testing.T) {
	percent := func() int {
		now := debug.SetGCPercent(100)
		debug.SetGCPercent(now)
		return now
	}
	before := percent()
	for _, c := range []struct {
		gogc string
		want int
	}{{"", growth}, {"70", before}} {
		t.Setenv("GOGC", c.gogc)
		over := tuneCollector()
		if got := percent(); got != c.want {
			t.Errorf("GOGC=%q: %d, want %d", c.gogc, got, c.want)
		}
		over()
		if got := percent(); got != before {
			t.Errorf("GOGC=%q: left at %d", c.gogc, got)
		}
	}
}
