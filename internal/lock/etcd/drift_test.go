//go:build linux

package etcd

import (
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// The active server's clock stands still for ten minutes, as that of a virtual machine does that its host pauses, or goes too slowly. What is
// acquired later is not made older by that.
func TestAClockThatStoodStillMakesNoLockOlder(t *testing.T) {
	for _, c := range []struct {
		name string
		step time.Duration // between two beats, by the active server's clock
		lag  time.Duration // that it has at once
	}{
		{"it stood still", time.Second, 10 * time.Minute},
		{"it is slow", 999 * time.Millisecond, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := boots{own: "own"}
			boot, now := time.Hour, 10*time.Hour
			revision := int64(0)
			run := func(beats int) {
				for range beats {
					revision++
					boot, now = boot+c.step, now+time.Second
					late := time.Duration(revision%10) * 100 * time.Millisecond
					b.see(kv(encode(beat{BootID: "other", Boot: boot}), revision), lock.Instant{Boot: now + late})
				}
			}
			run(3600)
			now += c.lag
			run(60)
			acquired := b.local(lock.Instant{Boot: boot}, "other", lock.Instant{})
			if age := now - acquired.Boot; age > 100*time.Millisecond || age < -time.Second {
				t.Errorf("what is acquired now is %v old", age)
			}
			before := boot
			// The server is gone, and its last beat is seen when it is old.
			revision++
			b.see(kv(encode(beat{BootID: "other", Boot: boot}), revision), lock.Instant{Boot: now + time.Hour})
			if age := now - b.local(lock.Instant{Boot: before}, "other", lock.Instant{}).Boot; age < -time.Second {
				t.Errorf("an old beat makes it %v younger", -age)
			}
		})
	}
}

// The active server knows of as many boots as it may. A standby knows its clock all the same, and those that are left out are the oldest.
func TestManyEarlierBootsLeaveRoomForTheActiveServer(t *testing.T) {
	var known []offset
	for i := range maxBoots {
		known = append(known, earlier(string(rune('A'+i)), 0))
	}
	b := boots{own: "own"}
	for i := range 5 {
		at := time.Duration(i+1) * time.Second
		b.see(kv(encode(beat{BootID: "other", Boot: at, Earlier: known}), int64(i+1)), lock.Instant{Boot: at})
	}
	for _, id := range []string{"other", "A", "B", "N", "O"} {
		if got := b.local(lock.Instant{Boot: 1}, id, lock.Instant{Boot: -time.Hour}); got.Boot < 0 {
			t.Errorf("the clock of %q is not known", id)
		}
	}
	if len(b.offsets) != maxBoots {
		t.Errorf("%d boots are known", len(b.offsets))
	}
}
