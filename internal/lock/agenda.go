package lock

import (
	"container/heap"
	"math"
)

// never is the time of something that does not come by itself.
const never = Time(math.MaxInt64)

// alarm is a moment at which a hold, a place or a name of a State may be due. It is a field of that.
type alarm struct {
	at    Time
	index int // in the agenda, from 1; 0: it is not in it
	hold  *hold
	place *place
	node  *node
}

// agenda is a heap of alarms, the earliest first. It is an index: an alarm may ring too early, and is then set anew.
type agenda []*alarm

// next returns the earliest time, or never.
func (a agenda) next() Time {
	if len(a) == 0 {
		return never
	}
	return a[0].at
}

// set puts the alarm in, moves it, or takes it out if its time never comes.
func (a *agenda) set(at *alarm, when Time) {
	switch {
	case when == never:
		a.remove(at)
	case at.index == 0:
		at.at = when
		heap.Push(a, at)
	case at.at != when:
		at.at = when
		heap.Fix(a, at.index-1)
	}
}

// remove takes the alarm out, if it is in.
func (a *agenda) remove(at *alarm) {
	if at.index > 0 {
		heap.Remove(a, at.index-1)
	}
}

// The methods of heap.Interface.

func (a agenda) Len() int           { return len(a) }
func (a agenda) Less(i, j int) bool { return a[i].at < a[j].at }
func (a agenda) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].index, a[j].index = i+1, j+1
}

// Push adds an alarm. It is for package heap.
func (a *agenda) Push(x any) {
	at := x.(*alarm)
	*a = append(*a, at)
	at.index = len(*a)
}

// Pop removes the last alarm. It is for package heap.
func (a *agenda) Pop() any {
	last := len(*a) - 1
	at := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	at.index = 0
	return at
}
