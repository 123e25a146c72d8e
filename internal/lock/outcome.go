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

// mark adds a volatile change.
func (o *outcome) mark(r Record) {
	r.Kind = marked
	o.records = append(o.records, r)
}

// ring sets an alarm.
func (o *outcome) ring(a *alarm, at Time) {
	o.mark(Record{volatile: volatile{mark: markAlarm, alarm: a, until: at}})
}

// claim starts a change of a directory.
func (o *outcome) claim(c *claim) {
	o.records = append(o.records, Record{Kind: claimed, volatile: volatile{claim: c}})
	o.task = c
}

// unqueue ends the waiting of a session.
func (o *outcome) unqueue(p *place, why error) {
	o.records = append(o.records, Record{Kind: unqueued, volatile: volatile{place: p, err: why}})
}

// refuse sets the error of the reply.
func (o *outcome) refuse(err error) { o.err = err }

// grants reports whether the outcome needs room in the log: for a grant, or for one that comes when its directory is made.
func (o *outcome) grants() bool {
	if o.task != nil {
		return o.task.makes
	}
	for i := range o.records {
		if r := &o.records[i]; r.Kind == Granted && r.Cause != CauseRestore && r.volatile.claim == nil {
			return true
		}
	}
	return false
}
