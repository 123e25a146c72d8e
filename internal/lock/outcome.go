package lock

// outcome is a decision: records to apply, and a reply. A decision changes nothing.
type outcome struct {
	records []Record
	busy    Name // something is under way at the name: when that is over, the same decision is made again. "": nothing is
	err     error

	granted *Hold  // the hold that the session has now
	adopted Token  // with granted: the token of the hold that it replaces
	task    *claim // a directory to be made or removed now
	place   *place // the session waits
}

// reset prepares an outcome for the next decision.
func (o *outcome) reset() {
	clear(o.records)
	*o = outcome{records: o.records[:0]}
}

// do adds a volatile change.
func (o *outcome) do(change func(*State)) {
	o.records = append(o.records, Record{change: change})
}

// ring sets an alarm.
func (o *outcome) ring(a *alarm, at Time) {
	o.do(func(st *State) { st.agenda.set(a, at) })
}

// claim starts a change of a directory.
func (o *outcome) claim(c *claim) {
	o.records = append(o.records, Record{place: c.place, change: func(st *State) { st.applyClaimed(c) }})
	o.task = c
}

// queue has a session wait.
func (o *outcome) queue(p *place) {
	o.do(func(st *State) { st.applyQueued(p) })
	o.place = p
}

// keep begins a write.
func (o *outcome) keep(k kept) {
	if !k.empty() {
		o.do(func(st *State) { st.applyKept(k, +1) })
	}
}

// unqueue ends the waiting of a session.
func (o *outcome) unqueue(p *place, why error) {
	o.records = append(o.records, Record{place: p, change: func(st *State) { st.applyUnqueued(p, why) }})
}

// refuse sets the error of the reply.
func (o *outcome) refuse(err error) { o.err = err }

// grants reports whether the outcome needs room in the log: for a grant, or for one that comes when its directory is made.
func (o *outcome) grants() bool {
	if o.task != nil {
		return o.task.makes
	}
	for i := range o.records {
		if r := &o.records[i]; r.Kind == Granted && r.Cause != CauseRestore && r.claim == nil {
			return true
		}
	}
	return false
}
