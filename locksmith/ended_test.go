package locksmith

import (
	"context"
	"errors"
	"testing"
)

// A transfer must not begin in the context of a lock that has ended.
func TestContextOfAnEndedLockHasEnded(t *testing.T) {
	for range 1000 {
		life, end := context.WithCancelCause(t.Context())
		end(ErrReleased)
		held, stop := (&Lock{life: life}).within(t.Context())
		if held.Err() == nil || !errors.Is(context.Cause(held), ErrReleased) {
			t.Fatalf("got %v", context.Cause(held))
		}
		stop()
	}
}
