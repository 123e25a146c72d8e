package web

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/ftplockd/ftplockd/internal/status"
)

// orders are the orders of the table of locks, in the order of its columns. Locks that are equal are in the order of their names.
var orders = []struct {
	key, title, class string
	compare           func(a, b *status.Lock) int
}{
	{"name", "Name", "broad", compare},
	{"holder", "Holder", "", func(a, b *status.Lock) int { return strings.Compare(a.Owner(), b.Owner()) }},
	{"since", "Since", "when wide-only", func(a, b *status.Lock) int { return a.Acquired.Compare(b.Acquired) }},
	{"expires", "Expires", "expires", compareExpiry},
	{"waiting", "Waiting", "count", func(a, b *status.Lock) int { return cmp.Compare(a.Waiting, b.Waiting) }},
}

// compareExpiry orders locks by their expiry. A lock that does not expire comes last.
func compareExpiry(a, b *status.Lock) int {
	switch aNever, bNever := a.Expires.IsZero(), b.Expires.IsZero(); {
	case aNever && bNever:
		return 0
	case aNever:
		return 1
	case bNever:
		return -1
	}
	return a.Expires.Compare(b.Expires.Time)
}

// sortKey returns the order that a request names, and "" for the order of names and for an unknown order.
func sortKey(asked string) string {
	for _, o := range orders {
		if strings.TrimPrefix(asked, "-") == o.key && asked != "name" {
			return asked
		}
	}
	return ""
}

// column is the head of a column of the table of locks.
type column struct{ Title, Class, Link, Order string }

// columns returns the heads of the table. The link of each sorts by its column, and again in the opposite order.
func (v view) columns() []column {
	var all []column
	current := cmp.Or(v.Sort, "name")
	for _, o := range orders {
		next := view{Filter: v.Filter, Sort: o.key}
		c := column{Title: o.title, Class: o.class}
		switch current {
		case o.key:
			c.Order, next.Sort = "ascending", "-"+o.key
		case "-" + o.key:
			c.Order = "descending"
		}
		next.Sort = sortKey(next.Sort)
		c.Link = next.link(1)
		all = append(all, c)
	}
	return all
}

// attention is a lock that is shown before the others.
type attention struct {
	status.Lock
	For time.Duration // how long it is held
}

// waiter is a client in a queue.
type waiter struct {
	Lock        string
	Place       int // from 1
	Client      string
	Holder      string // of the lock
	MoreHolders int    // of a shared lock
	For         time.Duration
}

// oldLocked returns the locks that are held for longest.
func (b *board) oldLocked(now time.Time) (old []attention) {
	for _, e := range topEntries(b.sorted[""], shownAttention, func(e *entry) bool { return now.Sub(e.Acquired) > longHeld && !e.Acquired.IsZero() },
		func(a, b *entry) int { return a.Acquired.Compare(b.Acquired) }) {
		old = append(old, attention{Lock: e.Lock, For: now.Sub(e.Acquired)})
	}
	return old
}

// waitersLocked returns the first clients of the longest queues. The holds of a shared lock have one queue.
func (b *board) waitersLocked() (all []waiter) {
	last := ""
	holders := make(map[string]int) // of each lock with a queue
	for _, e := range topEntries(b.sorted[""], shownWaiters, func(e *entry) bool {
		if e.Waiting > 0 {
			holders[e.Name]++
		}
		again := e.Name == last
		last = e.Name
		return e.Waiting > 0 && !again
	}, func(a, b *entry) int { return cmp.Compare(b.Waiting, a.Waiting) }) {
		queue := b.source.Waiting(e.Name) // clients may have left since the update
		for i, w := range queue[:min(len(queue), shownOfQueue, shownWaiters-len(all))] {
			all = append(all, waiter{e.Name, i + 1, w.Owner(), e.Owner(), holders[e.Name] - 1, time.Duration(w.Waited * float64(time.Second))})
		}
		if len(all) == shownWaiters {
			break
		}
	}
	return all
}

// topEntries returns the first entries in an order, so many at most.
func topEntries(all []*entry, most int, wanted func(*entry) bool, order func(a, b *entry) int) []*entry {
	var best []*entry
	for _, e := range all {
		if !wanted(e) || len(best) == most && order(e, best[len(best)-1]) >= 0 {
			continue
		}
		i, _ := slices.BinarySearchFunc(best, e, func(x, e *entry) int { return cmp.Or(order(x, e), -1) }) // after its equals
		best = slices.Insert(best, i, e)
		best = best[:min(len(best), most)]
	}
	return best
}
