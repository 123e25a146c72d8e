package lock

import "slices"

// outcome is the result of a decision: records to apply, and a reply.
type outcome struct {
	records []Record
	busy    Name // the decision waits for the next change of this name, such as a directory above the lock, and is made again; "": it does not wait
	err     error
	expects int // number of records that follow later and need room in the log, see State.expected

	granted *Hold // the hold of the session, which may be one of the records; nil: none
	reply
}

// reply is the part of an outcome for the caller of the decision, beside the hold and the error.
type reply struct {
	adopted Token        // of a grant: token of the adopted hold; 0: none
	claim   *claim       // a directory to make or remove now; nil: none
	waiter  *waiter      // the session waits now; nil: it does not
	permit  *writePermit // of permitAll; nil: a reload has replaced the rules, and nothing was decided
}

// writePermit allows writes in one step.
type writePermit struct {
	holds []Permit // the holds that allow them, in the order of the writes
	scope writeScope
}

// reset prepares an outcome for the next decision.
func (o *outcome) reset() {
	clear(o.records)
	*o = outcome{records: o.records[:0]}
}

// do adds a change that is not logged.
func (o *outcome) do(c change) {
	o.records = append(o.records, Record{change: c})
}

// setTimer sets a timer.
func (o *outcome) setTimer(x *timer, at Time) { o.do(timerSet{x, at}) }

// logged reports whether the outcome has records for the log.
func (o *outcome) logged() bool {
	return slices.ContainsFunc(o.records, func(r Record) bool { return r.Kind != 0 })
}

// addClaim starts a change of a directory.
func (o *outcome) addClaim(c *claim) {
	o.records = append(o.records, Record{waiter: c.waiter, change: claimed{c}})
	o.claim = c
}

// queue has a session wait.
func (o *outcome) queue(w *waiter) {
	o.do(queued{w})
	o.waiter = w
}

// beginWrite begins a write.
func (o *outcome) beginWrite(k writeScope) {
	if !k.empty() {
		o.do(writeBegun{k})
	}
}

// unqueue ends the waiting of a session, with an error or nil.
func (o *outcome) unqueue(w *waiter, why error) {
	o.records = append(o.records, Record{waiter: w, change: unqueued{w, why}})
}

// refuse sets the error of the reply.
func (o *outcome) refuse(err error) { o.err = err }

// needsRoom reports whether the outcome needs room in the log. Every record except an end needs room, now or later: clients can cause any
// number of other records. An undone adoption counts as an end, and a grant whose directory has been made has its room already.
func (o *outcome) needsRoom() bool {
	if o.expects > 0 {
		return true
	}
	if o.claim != nil {
		return o.claim.kind == claimGrant
	}
	for i := range o.records {
		r := &o.records[i]
		if r.Kind == Granted && r.Cause != CauseRestore && r.claim == nil || r.Cause == CauseRenew || r.Cause == CausePublish {
			return true
		}
	}
	return false
}
