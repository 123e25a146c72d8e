package lock

import (
	"testing"
	"time"
)

// newTestTable returns a table without directories whose time the clock has.
func newTestTable(t *testing.T, rules ...Rule) (*Table, *testClock) {
	t.Helper()
	clock := newTestClock()
	table, err := NewTable(t.Context(), Options{Log: new(memoryLog), Clock: clock, Rules: mustRules(rules...)})
	if err != nil {
		t.Fatal(err)
	}
	return table, clock
}

func TestIdleTimeOfAnEndedSessionCountsFromItsLastSignOfLife(t *testing.T) {
	table, clock := newTestTable(t, Rule{Match: "/locks/*", MaxIdle: time.Minute})
	s := table.Open(Owner{Account: "a"})
	if _, _, _, err := s.AcquireOrWait(t.Context(), "/locks/x", nil); err != nil {
		t.Fatal(err)
	}
	clock.step(50 * time.Second)
	s.Close(t.Context())
	clock.step(59 * time.Second)
	if table.Expire(t.Context()); !table.Held("/locks/x") {
		t.Error("the lock ended within a minute after its session")
	}
	clock.step(time.Second)
	if table.Expire(t.Context()); table.Held("/locks/x") {
		t.Error("the lock stands a minute after its session")
	}
}
