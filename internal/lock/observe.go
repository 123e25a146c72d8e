package lock

import "time"

// Observation is a grant, or the end of a hold.
type Observation struct {
	Name  Name
	Hold  Hold
	Ended bool
	Cause Cause
	By    Owner  // who asked for it
	Note  string // of an administrator; or that it is not known whether there is such a grant

	Waited time.Duration // of a grant: how long its client had waited in the queue
	Free   time.Duration // with Waited: for how long nobody had held the lock
	Held   time.Duration // of an end: since the grant
	Late   time.Duration // of an end by time: how long after it
}

// Count says how many there are of something in a table.
type Count struct {
	Holds   int
	Waiting int // places in queues
}

// Count says how much there is in the table. It costs the same whatever there is.
func (t *Table) Count() Count {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.count
}

// unsettledNote is told of a grant of which nobody can tell whether it was made. See [Table.putUncertainLocked].
const unsettledNote = "it is not known yet whether that happened; nobody else gets the lock meanwhile"

// grantedLocked tells of a new hold.
func (t *Table) grantedLocked(h *held, why reason) {
	if t.observe == nil {
		return
	}
	o := Observation{Name: h.node.name, Hold: h.Hold, Cause: why.cause, By: why.by, Note: why.note, Waited: why.waited}
	if h.Token == 0 {
		o.Note = unsettledNote
	}
	if o.Waited > 0 && h.node.freedAt != 0 {
		o.Free = max(0, t.clock.Now().Boot-h.node.freedAt)
	}
	t.observe(o)
}

// endedLocked tells of a hold that has ended. One that was adopted goes on as another.
func (t *Table) endedLocked(h *held, why reason, now Instant) {
	h.node.freedAt = now.Boot
	if t.observe == nil || why.cause == CauseAdopt {
		return
	}
	t.observe(Observation{
		Name: h.node.name, Hold: h.Hold, Ended: true, Cause: why.cause, By: why.by, Note: why.note,
		Held: max(0, now.Boot-h.Acquired.Boot), Late: why.late,
	})
}

// Queued is one place in the queue for a lock.
type Queued struct {
	Owner Owner
	Polls bool // the client tries again and again; it does not wait
}

// Queue returns who has a place in the queue for the name, in order.
func (t *Table) Queue(n Name) []Queued {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.nodes[n]
	if e == nil || e.queue == nil {
		return nil
	}
	var all []Queued
	for element := e.queue.places.Front(); element != nil; element = element.Next() {
		p := element.Value.(*place)
		all = append(all, Queued{Owner: p.owner, Polls: p.waiting == nil})
	}
	return all
}
