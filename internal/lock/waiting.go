package lock

import "context"

// Waiting is a session in the queue for a lock. It needs no goroutine. The table calls wake, with its mutex held, when Poll may have
// something to do; wake must not block or use the table. The session must call Poll soon after, because the lock may be granted.
// Poll and Withdraw are for one goroutine. [Table.Expire] ends the wait when its time is over.
type Waiting struct {
	session *Session
	waiter  *waiter
}

// Poll makes the directory of the lock if the session is the next, and reports whether the wait is over. The hold is the new one. The
// errors are those of AcquireOrWait; after the time, a *TimeoutError that wraps one. During a suspension the session stays in the queue.
func (w *Waiting) Poll(ctx context.Context) (h Hold, done bool, err error) {
	t, p := w.session.table, w.waiter
	r, claim, done, err := p.step(t)
	switch {
	case done && err != nil:
		return Hold{}, true, t.awaitRefusal(ctx, r.end, err)
	case done:
		return r.granted, true, t.awaitGrant(ctx, r)
	case claim != nil:
		if r, err = t.complete(ctx, claim); err == nil && r.granted.Token == 0 { // a directory of the host has the name, or the wait is over
			return w.Poll(ctx)
		}
		if err != nil {
			return Hold{}, true, err
		}
		return r.granted, true, t.awaitGrant(ctx, r)
	}
	return Hold{}, false, nil
}

// step returns the result of a wait that is over, or the claim of the directory that the session has to make now. During a suspension it gives
// up the claim: the session is served again after it.
func (w *waiter) step(t *Table) (r result, begun *claim, done bool, err error) {
	now := t.beginChange()
	defer t.endChange(now)
	switch c := w.claim; {
	case c == nil:
	case t.checkValid() != nil:
		t.st.applyUnclaimed(c)
	default:
		c.begun, begun = true, c
	}
	if r.end = w.end; w.granted != nil {
		r.granted = *w.granted
	}
	return r, begun, w.done, w.err
}

// Withdraw ends the wait without a result. If the lock was granted and Poll has not returned it, the hold ends.
func (w *Waiting) Withdraw() {
	t, p := w.session.table, w.waiter
	_, _ = t.decide(context.Background(), func(_ Instant, out *outcome) { t.st.withdraw(p, out) }) // an error: the hold has ended
}

// withdraw ends the wait of a session, or the hold that it got.
func (st *State) withdraw(w *waiter, out *outcome) {
	switch {
	case !w.done:
		out.unqueue(w, ErrEnded)
	case w.granted != nil:
		st.markUndelivered(w.granted.Name, w.granted.Token, w.granted.Owner.Session, out)
	}
}
