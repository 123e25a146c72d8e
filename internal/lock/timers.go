package lock

import (
	"container/heap"
	"math"
)

// never is later than every other time.
const never = Time(math.MaxInt64)

// timer is the time at which a hold, a waiter or a node may be due. It is a field of that value.
type timer struct {
	at     Time
	index  int // position in the heap, from 1; 0: none
	hold   *liveHold
	waiter *waiter
	node   *node
}

// timerHeap is a heap of timers, the earliest first. A timer may fire too early; its decision then sets it anew.
type timerHeap []*timer

// next returns the earliest time, or never.
func (a timerHeap) next() Time {
	if len(a) == 0 {
		return never
	}
	return a[0].at
}

// set adds or moves the timer, or removes it if the time is never.
func (a *timerHeap) set(x *timer, when Time) {
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

// remove removes the timer if the heap has it.
func (a *timerHeap) remove(x *timer) {
	if x.index > 0 {
		heap.Remove(a, x.index-1)
	}
}

// The methods of heap.Interface.

func (a timerHeap) Len() int           { return len(a) }
func (a timerHeap) Less(i, j int) bool { return a[i].at < a[j].at }
func (a timerHeap) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].index, a[j].index = i+1, j+1
}

// Push adds a timer. It is for package heap.
func (a *timerHeap) Push(x any) {
	added := x.(*timer)
	*a = append(*a, added)
	added.index = len(*a)
}

// Pop removes the last timer. It is for package heap.
func (a *timerHeap) Pop() any {
	last := len(*a) - 1
	removed := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	removed.index = 0
	return removed
}
