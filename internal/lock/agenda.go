package lock

import (
	"container/heap"
	"math"
)

// never is later than every other time.
const never = Time(math.MaxInt64)

// alarm is the time at which a hold, a waiter or a node may be due. It is a field of that value.
type alarm struct {
	at     Time
	index  int // position in the agenda, from 1; 0: none
	hold   *liveHold
	waiter *waiter
	node   *node
}

// agenda is a heap of alarms, the earliest first. An alarm may ring too early; its decision then sets it anew.
type agenda []*alarm

// next returns the earliest time, or never.
func (a agenda) next() Time {
	if len(a) == 0 {
		return never
	}
	return a[0].at
}

// set adds or moves the alarm, or removes it if the time is never.
func (a *agenda) set(x *alarm, when Time) {
	switch {
	case when == never:
		a.remove(x)
	case x.index == 0:
		x.at = when
		heap.Push(a, x)
	case x.at != when:
		x.at = when
		heap.Fix(a, x.index-1)
	}
}

// remove removes the alarm if the agenda has it.
func (a *agenda) remove(x *alarm) {
	if x.index > 0 {
		heap.Remove(a, x.index-1)
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
	added := x.(*alarm)
	*a = append(*a, added)
	added.index = len(*a)
}

// Pop removes the last alarm. It is for package heap.
func (a *agenda) Pop() any {
	last := len(*a) - 1
	removed := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	removed.index = 0
	return removed
}
