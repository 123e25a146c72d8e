package lock

import (
	"context"
	"time"
)

// Run keeps the clock exact, and has the log written anew when that wants it, until ctx ends; then it returns nil.
func (t *Table) Run(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	rewriter, _ := t.log.(Rewriter)
	var rewrite <-chan struct{}
	if rewriter != nil {
		rewrite = rewriter.Rewrite()
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			t.clock.Exact()
		case <-rewrite:
			if t.rewrite(ctx) {
				rewriter.Rewritten()
			}
		}
	}
}

// rewrite appends all holds, a few at a time, and reports whether it has appended all. It waits until each part is written, so that
// the replies of sessions wait for no more than one part.
func (t *Table) rewrite(ctx context.Context) bool {
	const batch = 256
	t.mu.Lock()
	defer t.mu.Unlock()
	records := make([]Record, 0, batch)
	for _, n := range t.st.nodes { // nodes that come and go between the parts do no harm
		for _, h := range n.holds {
			records = append(records, Record{Kind: Granted, Cause: CauseRewrite, Hold: h.Hold, By: h.Owner, At: h.Acquired})
		}
		if len(records) >= batch {
			end := t.log.Append(records)
			records = records[:0]
			t.mu.Unlock()
			err := t.log.Wait(ctx, end, true)
			t.mu.Lock()
			if err != nil {
				return false
			}
		}
	}
	t.log.Append(records)
	return true
}
