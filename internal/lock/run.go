package lock

import (
	"context"
	"time"
)

// Run keeps the clock exact until ctx ends; then it returns nil.
func (t *Table) Run(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			t.clock.Exact()
		}
	}
}
