package lock

import (
	"math"
	"time"
)

// agenda is a heap of nodes by the boot time at which they are to be looked at. What is
// due of a hold that idles may have moved to later by then: it is not kept exact for each
// sign of life.
type agenda struct{ nodes []*node }

const neverEnds = time.Duration(math.MaxInt64)

// next returns the earliest due time, or neverEnds.
func (a *agenda) next() time.Duration {
	if len(a.nodes) == 0 {
		return neverEnds
	}
	return a.nodes[0].due
}

// set puts the node in, or moves it.
func (a *agenda) set(e *node, due time.Duration) {
	e.due = due
	if e.place == 0 {
		a.nodes = append(a.nodes, e)
		e.place = len(a.nodes)
	}
	a.fix(e.place - 1)
}

// remove takes the node out, if it is in.
func (a *agenda) remove(e *node) {
	i, last := e.place-1, len(a.nodes)-1
	if i < 0 {
		return
	}
	a.swap(i, last)
	a.nodes[last] = nil
	a.nodes = a.nodes[:last]
	e.place = 0
	if i < last {
		a.fix(i)
	}
}

func (a *agenda) fix(i int) {
	for i > 0 && a.nodes[i].due < a.nodes[(i-1)/2].due {
		a.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
	for {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(a.nodes); c++ {
			if a.nodes[c].due < a.nodes[least].due {
				least = c
			}
		}
		if least == i {
			return
		}
		a.swap(i, least)
		i = least
	}
}

func (a *agenda) swap(i, j int) {
	a.nodes[i], a.nodes[j] = a.nodes[j], a.nodes[i]
	a.nodes[i].place, a.nodes[j].place = i+1, j+1
}

// armLocked puts e on the agenda for when it is to be looked at next. Not while it is busy:
// whoever changes it arms it at the end.
func (t *Table) armLocked(e *node) {
	due := neverEnds
	if !e.busy {
		due = t.dueLocked(e)
	}
	if due == neverEnds {
		t.agenda.remove(e)
		return
	}
	t.armAtLocked(e, due)
}

func (t *Table) armAtLocked(e *node, due time.Duration) {
	t.agenda.set(e, due)
	if t.agenda.next() >= t.awaited {
		return
	}
	select {
	case t.changed <- struct{}{}:
	default: // it is told already
	}
}

func (t *Table) dueLocked(e *node) time.Duration {
	if e.contended() {
		return min(t.ownDueLocked(e), e.contentionDue())
	}
	return t.ownDueLocked(e)
}

// ownDueLocked is dueLocked but for those who want the lock.
func (t *Table) ownDueLocked(e *node) time.Duration {
	due := neverEnds
	if len(e.holds) == 0 {
		for _, at := range [...]time.Duration{e.delayedTo, e.lingerTo} {
			if at > 0 {
				due = min(due, at)
			}
		}
		return due
	}
	for _, h := range e.holds {
		at, _ := t.deadlineLocked(h)
		due = min(due, at)
	}
	if e.failure != nil {
		due = max(due, e.failure.until)
	}
	return due
}

// deadlineLocked says when the hold is over and why, or neverEnds.
func (t *Table) deadlineLocked(h *held) (time.Duration, Cause) {
	at, cause := h.latest()
	if h.Rule.MaxIdle > 0 {
		if idle := later(t.lastSignLocked(h), h.Rule.MaxIdle); idle < at {
			at, cause = idle, CauseIdle
		}
	}
	return at, cause
}

// latest says when the hold is over whatever signs of life there are, and why, or neverEnds.
func (h *Hold) latest() (time.Duration, Cause) {
	at, cause := neverEnds, CauseExpire
	if h.Rule.MaxAge > 0 {
		at = later(h.Renewed.Boot, h.Rule.MaxAge)
	}
	if h.waitsForGrace() {
		if grace := later(h.Ended.Boot, h.Rule.Grace); grace < at {
			at, cause = grace, CauseDisconnect
		}
	}
	return at, cause
}

// later adds two times; what is too late to be told is neverEnds.
func later(at, d time.Duration) time.Duration {
	if at > 0 && d > neverEnds-at {
		return neverEnds
	}
	return at + d
}

// lastSignLocked returns the holder's last sign of life, by its session or by the Work of another one of its job; of a
// session with a command under way it is now.
func (t *Table) lastSignLocked(h *held) time.Duration {
	s := h.session
	if s == nil {
		return h.idleFrom
	}
	if !s.closed && s.commands.Load() > 0 {
		return t.clock.Now().Boot
	}
	return max(h.idleFrom, time.Duration(s.seen.Load()))
}

// waitsForGrace reports whether the acquiring connection is known to have ended.
func (h *Hold) waitsForGrace() bool { return h.Ended != Instant{} }
