package lock

import (
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
