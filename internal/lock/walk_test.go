package lock

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// A walk over many locks releases the mutex again and again, so that it holds up no client.
func TestAWalkReleasesTheMutex(t *testing.T) {
	table := &Table{}
	table.mu.Lock()
	defer table.mu.Unlock()
	looked := make(chan struct{})
	go func() {
		table.mu.Lock()
		defer table.mu.Unlock()
		close(looked)
	}()
	steps := 0
	for began := time.Now(); time.Since(began) < 10*time.Second; {
		table.walkLocked(&steps)
		select {
		case <-looked:
			return
		default:
		}
	}
	t.Errorf("a walk of %d steps holds up a look", steps)
}

// The end of a write concerns the queues below it, in the order of their sessions, and not all names.
func TestTheEndOfABarServesTheQueuesBelow(t *testing.T) {
	table, err := NewTable(t.Context(), Options{Log: &memoryLog{}, Clock: newTestClock(), Rules: mustRules(Rule{Match: "/l/**", Contention: &Contention{Wait: time.Minute}})})
	if err != nil {
		t.Fatal(err)
	}
	s, other := table.Open(Owner{Account: "a"}), table.Open(Owner{Account: "b"})
	for i := range 100 {
		if _, _, _, err := s.AcquireOrWait(t.Context(), Name(fmt.Sprint("/l/", i)), nil); err != nil {
			t.Fatal(err)
		}
	}
	want := []Name{"/l"}
	for i := range 5 {
		name := Name(fmt.Sprint("/l/", 9-i))
		if _, _, w, err := other.AcquireOrWait(t.Context(), name, func() {}); w == nil {
			t.Fatal(err)
		}
		want = append(want, name)
	}
	table.st.reoffer(table.st.nodes["/l"])
	var got []Name
	for _, n := range table.st.dirty {
		got = append(got, n.name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("served %q, want %q", got, want)
	}
}
