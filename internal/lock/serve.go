package lock

import (
	"context"
	"slices"
	"time"
)

// The functions of this file serve the queues.

// serveQueuesLocked serves the queues of vacated limits and dirty names, and wakes decisions that wait for these names.
func (t *Table) serveQueuesLocked(now Instant) {
	st := t.st
	for i := 0; i < len(st.dirty) || len(st.vacated) > 0; { // a hand-over may add more
		if len(st.vacated) > 0 { // pools first: their waiters have one order across names
			p := st.vacated[0]
			st.vacated = st.vacated[1:]
			t.fillLocked(p, now)
			continue
		}
		n := st.dirty[i]
		i++
		if changed := t.busy[n.name]; changed != nil {
			close(changed)
			delete(t.busy, n.name)
		}
		t.serveLocked(n, now)
	}
	clear(st.dirty)
	st.dirty, st.vacated = st.dirty[:0], nil
}

// fillLocked serves the sessions that wait for a limit, in their order, until the limit is reached.
func (t *Table) fillLocked(p *pool, now Instant) {
	for _, waiting := range slices.Clone(p.queue) {
		if p.full() {
			return
		}
		t.serveLocked(waiting.node, now)
	}
}

// serveLocked serves the queue of a name.
func (t *Table) serveLocked(n *node, now Instant) {
	for more := true; more && len(n.queue) > 0; {
		if n.unserved = t.checkValid(); n.unserved == nil && !t.log.Room(t.nextTokenLocked()) {
			n.unserved = errNoRoom
		}
		if n.unserved != nil {
			t.markUnservedLocked(n.name)
			return
		}
		t.handOverOutcome.reset()
		more = t.st.handOver(n, now, &t.handOverOutcome)
		t.commitLocked(&t.handOverOutcome)
	}
}

// markUnservedLocked makes Run serve the queue of the name when the server may change locks and the log has room.
func (t *Table) markUnservedLocked(n Name) {
	if len(t.unserved) == 0 {
		select {
		case t.serveLater <- struct{}{}:
		default:
		}
	}
	t.unserved[n] = struct{}{}
}

// serveUnserved waits for room in the log, at most a second, and serves the unserved queues.
func (t *Table) serveUnserved(ctx context.Context) {
	t.mu.Lock()
	waiting, token := len(t.unserved) > 0, t.nextTokenLocked()
	t.mu.Unlock()
	if !waiting || t.checkValid() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	err := t.log.MakeRoom(ctx, token)
	t.mu.Lock()
	defer t.mu.Unlock()
	for name := range t.unserved {
		switch n := t.st.nodes[name]; {
		case n == nil:
		case err == nil:
			t.st.markDirty(n)
		case ctx.Err() == nil:
			n.unserved = err
		}
	}
	if err != nil {
		return
	}
	clear(t.unserved)
	t.serveQueuesLocked(t.clock.Now())
}
