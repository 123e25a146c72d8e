//go:build linux

package etcd

import (
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

// machine returns the clock of another machine, with a time since boot and a step of the wall clock.
func machine(id string, boot, wall time.Duration) *locktest.FakeClock {
	clock := locktest.NewRunningClock()
	clock.Reboot(id, wall)
	clock.Advance(boot)
	clock.StepWall(-boot)
	return clock
}

// No server stood by, so the wall clock gives the time without an active server. Its earlier steps do not matter.
func TestAColdStartUsesTheWallClock(t *testing.T) {
	for name, gap := range map[string]time.Duration{"a minute": time.Minute, "the wall clock went back": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, 1)
			o := s.options()
			one := machine("one", time.Hour, 0)
			o.Clock, o.BootID = one, "one"
			c := s.open(o)
			active := s.campaign(c)
			s.acquire(active, "/a_lock")
			one.Advance(10 * time.Second)
			one.StepWall(-5 * time.Hour)
			written := func() int64 { kv, _ := c.get(t.Context(), c.keys.beat()); return kv.GetVersion() }
			before := written()
			s.until("two beats are written", func() bool { return written() > before+1 })
			s.resign(active)
			two := machine("two", 2*time.Hour, 10*time.Second+gap-5*time.Hour)
			o.Clock, o.BootID = two, "two"
			second := s.campaign(s.open(o))
			loaded, err := second.Load(t.Context())
			if err != nil || len(loaded.Holds) != 1 {
				t.Fatal(loaded, err)
			}
			want := 10*time.Second + max(0, gap)
			if age := two.Now().Boot - loaded.Holds[0].Acquired.Boot; age < want || age > want+patience {
				t.Errorf("the lock is %v old, want %v", age, want)
			}
		})
	}
}

// The standby's clock is an hour ahead at first.
func TestBeatsGiveTheShiftOfTheClock(t *testing.T) {
	const ahead = -time.Hour
	for name, c := range map[string]struct {
		beats func(see func(beat), wait func(active, own time.Duration))
		want  time.Duration // the largest shift; it may be 100 ms smaller
	}{
		"the beat with the shortest delay counts": {func(see func(beat), wait func(active, own time.Duration)) {
			for _, late := range []time.Duration{time.Minute, 800 * time.Millisecond, 10 * time.Millisecond, 500 * time.Millisecond} {
				wait(0, late)
				see(beat{})
				wait(late, 0)
				wait(time.Second, time.Second)
			}
		}, ahead},
		"a clock that stopped makes no later lock older": {func(see func(beat), wait func(active, own time.Duration)) {
			for i := range 100 {
				if wait(time.Second, time.Second); i == 70 {
					wait(0, 10*time.Minute)
				}
				see(beat{})
			}
		}, ahead - 10*time.Minute},
		"a slow clock makes no lock older": {func(see func(beat), wait func(active, own time.Duration)) {
			for range 3600 {
				wait(999*time.Millisecond, time.Second)
				see(beat{})
			}
		}, ahead - 3600*time.Millisecond + beatsKept*time.Millisecond},
		"the last beat of a dead server is read late": {func(see func(beat), wait func(active, own time.Duration)) {
			see(beat{})
			see(beat{})
			wait(0, time.Hour)
			see(beat{})
		}, ahead},
		"the beats of an earlier term do not count": {func(see func(beat), wait func(active, own time.Duration)) {
			for range 3 {
				wait(time.Second, time.Second)
				see(beat{Term: 1})
			}
			wait(0, 10*time.Minute)
			see(beat{Term: 2})
		}, ahead - 10*time.Minute},
		"the wall clock counts after one beat": {func(see func(beat), _ func(active, own time.Duration)) {
			see(beat{Wall: time.Unix(1000, 0)})
		}, ahead + time.Minute},
		"the same boot": {func(see func(beat), wait func(active, own time.Duration)) {
			see(beat{})
			see(beat{BootID: "own", Boot: 11*time.Hour - time.Second})
		}, ahead + time.Second},
		"a restored snapshot has the same boot id and an earlier time since boot": {func(see func(beat), _ func(active, own time.Duration)) {
			see(beat{BootID: "own", Boot: 12 * time.Hour, Wall: time.Unix(1000, 0)})
		}, ahead + time.Minute},
		"a copy of the machine has the same boot id and another time since boot": {func(see func(beat), wait func(active, own time.Duration)) {
			for range 3 {
				see(beat{BootID: "own", Boot: time.Hour})
				wait(time.Second, time.Second)
			}
		}, ahead},
	} {
		t.Run(name, func(t *testing.T) {
			l := timeline{bootID: "own"}
			active, own := 10*time.Hour, 11*time.Hour
			revision := int64(0)
			var last *mvccpb.KeyValue
			wall := time.Unix(1060, 0)
			c.beats(func(b beat) {
				revision++
				if b.Time = active; b.Wall.IsZero() {
					b.Wall = wall
				}
				last = &mvccpb.KeyValue{Value: []byte(encode(b)), ModRevision: revision}
				l.addBeat(last, lock.Instant{Boot: own, Wall: wall})
				l.addBeat(last, lock.Instant{Boot: own + time.Hour, Wall: wall}) // the same beat again
			}, func(a, b time.Duration) { active, own = active+a, own+b })
			got := l.shift(last, lock.Instant{Boot: own, Wall: wall})
			if got > c.want || got < c.want-100*time.Millisecond {
				t.Errorf("the shift is %v, want %v", got, c.want)
			}
		})
	}
}
