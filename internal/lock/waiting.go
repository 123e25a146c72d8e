package lock

import "context"

// Waiting is a session that waits for a lock, without a goroutine. The table calls wake when Poll may have something to do. It holds its
// mutex meanwhile: wake must not block, and must not use the table. The session must call Poll soon after that, since the lock may be its own.
// Poll and Withdraw are for one goroutine. [Table.Expire] ends the waiting when its time is over.
type Waiting struct {
	session *Session
	place   *place
}

// Poll makes the directory of the lock if that is to be made now, and reports whether the waiting is over. The hold is the one that was
// acquired. The errors are those of AcquireOrWait; when the time is over a
// *TimeoutError around one. While nothing may be changed the session goes on waiting, in its place.
func (w *Waiting) Poll(ctx context.Context) (h Hold, over bool, err error) {
	t, p := w.session.table, w.place
	t.mu.Lock()
	over, err = p.over, p.err
	r := result{end: p.end}
	task := p.makes
	if p.granted != nil {
		r.granted = *p.granted
	}
	if task != nil {
		task.begun = true
	}
	t.mu.Unlock()
	switch {
	case over && err != nil:
		return Hold{}, true, err
	case over && p.look:
		return r.granted, true, nil // nothing depends on the grant until the first change
	case over:
		return r.granted, true, t.written(ctx, r)
	case task != nil:
		if r, err = t.complete(ctx, task); err == nil && r.granted.Token == 0 { // a directory of the host is in the way, or the waiting is over
			return w.Poll(ctx)
		}
		if err != nil {
			return Hold{}, true, err
		}
		return r.granted, true, t.written(ctx, r)
	}
	return Hold{}, false, nil
}

// Withdraw ends the waiting without a result, unless it is over; the next session in the queue gets its turn. If the lock was
// granted and Poll has not returned it, the hold ends.
func (w *Waiting) Withdraw() {
	t, p := w.session.table, w.place
	t.decide(context.Background(), func(now Instant, out *outcome) {
		switch {
		case p.view != nil:
			if !p.over {
				t.st.giveUp(p, nil, now, out)
			}
		case !p.over:
			out.unqueue(p, ErrEnded)
		case p.granted != nil:
			t.st.undo(*p.granted, out)
		}
	})
}
