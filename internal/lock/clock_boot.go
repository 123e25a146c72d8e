package lock

import (
	"sync"
	"sync/atomic"
	"time"
)

// reading is a look at the two clocks that the vDSO tells without a system call.
type reading struct {
	wall time.Time     // without the monotonic reading, by which steps would not be seen
	mono time.Duration // since some moment (CLOCK_MONOTONIC), suspend not counted
}

// bootTime tells the time since boot, suspend counted, mostly without the system call that this is in Go.
//
// Boot time is the monotonic time and all that the machine was suspended. A suspend moves the wall clock against the
// monotonic one, too, and nothing else does but a step of the wall clock: what slews one of them slews both. So as long as these
// two have not moved against each other, what was added last still holds. A suspend and a step in the other direction
// that agree to tolerance are told at most recheck later. It never goes back.
type bootTime struct {
	look func() reading
	call func() (time.Duration, bool) // the system call

	last atomic.Pointer[sighting]
	mu   sync.Mutex // one system call at a time, so that what is added never gets less
}

// sighting is what was found when the system was asked last.
type sighting struct {
	suspended time.Duration // boot time less monotonic time
	apart     int64         // wall clock less monotonic time, in nanoseconds
	until     time.Duration // monotonic: asked again then
}

const (
	// tolerance is above what lies between the looks at two clocks, unless the thread was interrupted there; that
	// costs another call.
	tolerance = int64(20 * time.Microsecond)
	// recheck is how long an answer of the system is believed at most.
	recheck = time.Second
	// sightings is how often it is looked at most for a call that was not interrupted.
	sightings = 4
)

func (r reading) apart() int64 { return r.wall.UnixNano() - int64(r.mono) }

// holds reports whether the sighting tells the boot time of that reading.
func (s *sighting) holds(r reading) bool {
	moved := r.apart() - s.apart
	return r.mono < s.until && moved <= tolerance && moved >= -tolerance
}

// now returns the wall time and the boot time; false if the system does not tell it.
func (b *bootTime) now() (wall time.Time, boot time.Duration, ok bool) {
	r := b.look()
	if s := b.last.Load(); s != nil && s.holds(r) {
		return r.wall, r.mono + s.suspended, true
	}
	return b.ask()
}

// ask asks the system.
func (b *bootTime) ask() (wall time.Time, boot time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	suspended, inexact, ok := b.bracket()
	r := b.look()
	if !ok {
		return r.wall, 0, false
	}
	if old := b.last.Load(); old != nil && suspended-old.suspended <= inexact {
		suspended = old.suspended
	}
	b.last.Store(&sighting{suspended: suspended, apart: r.apart(), until: r.mono + recheck})
	return r.wall, r.mono + suspended, true
}

// bracket returns what boot time is ahead of monotonic time, and how exact that is: it looks at one between two looks at the
// other, if need be a few times, and takes the closest.
func (b *bootTime) bracket() (suspended, inexact time.Duration, ok bool) {
	for try := range sightings {
		before := b.look()
		at, ok := b.call()
		gap := b.look().mono - before.mono
		if !ok {
			return 0, 0, false
		}
		if try == 0 || gap < inexact {
			suspended, inexact = at-before.mono-gap/2, gap
		}
		if gap <= time.Duration(tolerance) {
			break
		}
	}
	return suspended, inexact, true
}
