package locksmith

import (
	"context"
	"errors"
	"testing"
)

// A lock that has ended gives no context that is alive for a moment: a transfer could begin in it, and be over.
func TestTheContextOfALockThatHasEndedHasEnded(t *testing.T) {
	for range 1000 {
		life, end := context.WithCancelCause(t.Context())
		end(errReleased)
		held, stop := (&Lock{life: life}).within(t.Context())
		if held.Err() == nil || !errors.Is(context.Cause(held), ErrLost) {
			t.Fatalf("got %v", context.Cause(held))
		}
		stop()
	}
}
