package lock

import (
	"container/heap"
	"math"
	"time"
)

// neverEnds is the due time of what does not end by itself.
const neverEnds = time.Duration(math.MaxInt64)

// alarm is a moment at which the table has to look at something: at a name, at a client that waits, or at one that
// polls. It is part of what it is for.
type alarm struct {
	due     time.Duration // boot time
	index   int           // in the agenda, from 1; 0: it is not in it
	name    *node
	waiting *Waiting
	poller  *poller
}

// agenda is a heap of alarms, the earliest first.
type agenda struct{ alarms alarmHeap }

// next returns the earliest due time, or neverEnds.
func (a *agenda) next() time.Duration {
	if len(a.alarms) == 0 {
		return neverEnds
	}
	return a.alarms[0].due
}

// pop takes out the earliest alarm if it is due.
func (a *agenda) pop(now time.Duration) *alarm {
	if a.next() > now {
		return nil
	}
	return heap.Pop(&a.alarms).(*alarm)
}

// set puts the alarm in, moves it, or takes it out if it is never due.
func (a *agenda) set(at *alarm, due time.Duration) {
	switch {
	case due == neverEnds:
		a.remove(at)
	case at.index == 0:
		at.due = due
		heap.Push(&a.alarms, at)
	case at.due != due:
		at.due = due
		heap.Fix(&a.alarms, at.index-1)
	}
}

// remove takes the alarm out, if it is in.
func (a *agenda) remove(at *alarm) {
	if at.index > 0 {
		heap.Remove(&a.alarms, at.index-1)
	}
}

type alarmHeap []*alarm

func (h alarmHeap) Len() int           { return len(h) }
func (h alarmHeap) Less(i, j int) bool { return h[i].due < h[j].due }
func (h alarmHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i+1, j+1
}

func (h *alarmHeap) Push(x any) {
	at := x.(*alarm)
	*h = append(*h, at)
	at.index = len(*h)
}

func (h *alarmHeap) Pop() any {
	last := len(*h) - 1
	at := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	at.index = 0
	return at
}

// armLocked puts e on the agenda for when it is to be looked at next. A name that is being changed is armed at the end of
// the change.
func (t *Table) armLocked(e *node) {
	due := neverEnds
	if e.doing == idle {
		due = t.dueLocked(e)
	}
	t.names.set(&e.alarm, due)
	t.hurryLocked()
}

// hurryLocked tells the caller of NextExpiry if something is due sooner than that said.
func (t *Table) hurryLocked() {
	if min(t.names.next(), t.wanting.next()) >= t.awaited {
		return
	}
	select {
	case t.changed <- struct{}{}:
	default: // it has been told
	}
}

// dueLocked says when a name is to be looked at, neverEnds if only the end of something else can change it.
func (t *Table) dueLocked(e *node) time.Duration {
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
	if now := t.clock.Now().Boot; due <= now && e.kept() {
		if t.tooOldLocked(e) {
			return later(now, time.Second) // some member could not end with it
		}
		return neverEnds // the end of what keeps it arms it
	}
	return max(due, e.failure.until)
}

// deadlineLocked says when the hold is over and why, or neverEnds.
func (t *Table) deadlineLocked(h *held) (time.Duration, Cause) {
	at, cause := h.latest()
	if h.undelivered > 0 {
		return h.undelivered, CauseUndeliver
	}
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

// later adds two times; the sum is at most neverEnds.
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
