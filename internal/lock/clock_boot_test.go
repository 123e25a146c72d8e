package lock

import (
	"testing"
	"time"
)

// machine has the three clocks of a machine.
type machine struct {
	wall            time.Time
	mono, suspended time.Duration
	calls           int           // how often the system was asked
	early, late     time.Duration // what a call takes before and after it looks
	untold          bool          // the system does not know boot time
}

func newMachine() (*machine, *bootTime) {
	m := &machine{wall: time.Unix(1e9, 0), suspended: time.Hour}
	return m, &bootTime{
		look: func() reading { return reading{m.wall, m.mono} },
		call: func() (time.Duration, bool) {
			m.calls++
			m.run(m.early)
			at := m.mono + m.suspended
			m.run(m.late)
			return at, !m.untold
		},
	}
}

func (m *machine) run(d time.Duration) { m.wall, m.mono = m.wall.Add(d), m.mono+d }

func (m *machine) suspend(d time.Duration) { m.wall, m.suspended = m.wall.Add(d), m.suspended+d }

func (m *machine) boot() time.Duration { return m.mono + m.suspended }

func TestBootTimeIsAskedForWhenTheClocksHaveMoved(t *testing.T) {
	for _, c := range []struct {
		name  string
		does  func(*machine)
		calls int
	}{
		{"nothing", func(*machine) {}, 0},
		{"time goes by", func(m *machine) { m.run(recheck - time.Millisecond) }, 0},
		{"more time goes by", func(m *machine) { m.run(recheck) }, 1},
		{"a suspend", func(m *machine) { m.suspend(time.Minute) }, 1},
		{"a short one", func(m *machine) { m.suspend(time.Millisecond) }, 1},
		{"a step of the wall clock", func(m *machine) { m.wall = m.wall.Add(-time.Hour) }, 1},
		{"both at once", func(m *machine) { m.suspend(time.Minute); m.wall = m.wall.Add(-time.Minute); m.run(recheck) }, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, b := newMachine()
			b.now()
			m.calls = 0
			c.does(m)
			for range 3 {
				if wall, boot, ok := b.now(); !ok || boot != m.boot() || !wall.Equal(m.wall) {
					t.Errorf("%v %v %v, want %v %v", wall, boot, ok, m.wall, m.boot())
				}
			}
			if m.calls != c.calls {
				t.Errorf("%d calls, want %d", m.calls, c.calls)
			}
		})
	}
}

func TestBootTimeNeverGoesBack(t *testing.T) {
	m, b := newMachine()
	var last time.Duration
	for i := range 50 {
		m.early, m.late = time.Duration(i%7)*30*time.Microsecond, time.Duration(i%5)*30*time.Microsecond
		_, boot, ok := b.now()
		if !ok || boot < last || (boot-m.boot()).Abs() > 300*time.Microsecond {
			t.Fatalf("%v after %v, and it is %v", boot, last, m.boot())
		}
		last = boot
		_, again, _ := b.now()
		m.early, m.late = 0, 0
		b.last.Store(&sighting{suspended: b.last.Load().suspended}) // not to be believed any more
		if _, asked, _ := b.now(); asked < again {
			t.Fatalf("%v after %v", asked, again)
		}
		m.run(recheck)
		if i%10 == 0 {
			m.suspend(time.Minute)
		}
	}
}

func TestBootTimeOfASystemThatDoesNotTell(t *testing.T) {
	m, b := newMachine()
	m.untold = true
	if _, boot, ok := b.now(); ok {
		t.Errorf("told %v", boot)
	}
}

func TestBootTimeAgreesWithTheSystem(t *testing.T) {
	clock := NewSystemClock()
	if clock.boot == "" {
		t.Skip("the system does not tell boot time")
	}
	for range 100 {
		before, _ := sinceBoot()
		now := clock.Now().Boot
		after, _ := sinceBoot()
		if slack := time.Millisecond; now < before-slack || now > after+slack {
			t.Fatalf("%v is not between %v and %v", now, before, after)
		}
	}
}

func BenchmarkSystemClock(b *testing.B) {
	clock := NewSystemClock()
	for b.Loop() {
		clock.Now()
	}
}
