//go:build linux

package etcd

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

// machine is a clock of its own, with another time since boot and another wall clock.
func machine(id string, boot, wall time.Duration) *locktest.FakeClock {
	clock := locktest.NewRunningClock()
	clock.Reboot(id, wall)
	clock.Advance(boot)
	clock.StepWall(-boot)
	return clock
}

// Without a standby that has seen both clocks nothing is mapped: a beat that is found may be of any age.
func TestAfterAColdStartTheWallClockCounts(t *testing.T) {
	s := newScene(t, 1)
	o := s.options()
	one := machine("one", time.Hour, 0)
	o.Clock, o.BootID = one, "one"
	c := s.open(o)
	active := s.campaign(c)
	hold := s.acquire(active, "/a_lock")
	held := active.grant("/b_lock")
	held.Hold.Acquired.Wall = held.Hold.Acquired.Wall.Add(time.Hour) // the clock went back
	if err := s.commit(active, held); err != nil {
		t.Fatal(err)
	}
	s.until("there is a beat", func() bool { status, err := c.Status(t.Context()); return err == nil && status.Beat >= 0 })
	s.resign(active)
	two := machine("two", 2*time.Hour, 0)
	two.Advance(time.Minute)
	o.Clock, o.BootID = two, "two"
	got := s.holds(s.campaign(s.open(o)).c)
	now := two.Now()
	if age, want := now.Boot-got["/a_lock"].Acquired.Boot, now.Wall.Sub(hold.Acquired.Wall); age.Round(time.Second) != want.Round(time.Second) {
		t.Errorf("it is %v old, want %v", age, want)
	}
	if age := now.Boot - got["/b_lock"].Acquired.Boot; age.Round(time.Second) != 0 {
		t.Errorf("a lock from the future is %v old", age)
	}
}

// boots as such: what a standby makes of a sequence of beats.
func TestTheSmallestOffsetCounts(t *testing.T) {
	b := boots{own: "own"}
	revision := int64(0)
	see := func(boot, now time.Duration, earlier ...offset) {
		revision++
		b.see(kv(encode(beat{BootID: "other", Boot: boot, Earlier: earlier}), revision), lock.Instant{Boot: now})
	}
	see(10*time.Second, time.Hour) // it may be old
	if len(b.offsets) > 0 {
		t.Errorf("the first beat counts: %+v", b.offsets)
	}
	see(11*time.Second, 113*time.Second)
	see(12*time.Second, 112*time.Second, earlier("older", -5*time.Second), earlier("own", 7))
	see(13*time.Second, 115*time.Second)
	b.see(kv(encode(beat{BootID: "other", Boot: 90 * time.Second}), revision), lock.Instant{Boot: 91}) // the same one
	for from, want := range map[string]time.Duration{"other": 101 * time.Second, "older": 96 * time.Second, "own": time.Second} {
		if got := b.local(lock.Instant{Boot: time.Second}, from, lock.Instant{}); got.Boot != want {
			t.Errorf("of %s: %+v, want %v", from, got, want)
		}
	}
	// A server that was started again on the same machine knows at once what the one before knew.
	again := boots{own: "other"}
	again.see(kv(encode(beat{BootID: "other", Boot: 1, Earlier: []offset{earlier("older", time.Second)}}), 1), lock.Instant{Boot: time.Hour})
	if got := again.local(lock.Instant{Boot: 1}, "older", lock.Instant{}); got.Boot != time.Second+1 {
		t.Errorf("on the same machine: %+v", got)
	}
}

func earlier(id string, add time.Duration) offset { return offset{BootID: id, Add: add} }

func kv(value string, revision int64) *mvccpb.KeyValue {
	return &mvccpb.KeyValue{Value: []byte(value), ModRevision: revision}
}

// notes are what a server logs.
type notes struct {
	mu   sync.Mutex
	text strings.Builder
}

func (n *notes) Write(line []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.Write(line)
}

// say reports how often something is logged.
func (n *notes) say(what string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Count(n.text.String(), what)
}

func TestServersThatDifferAreWarnedOf(t *testing.T) {
	s := newScene(t, 1)
	o := s.options()
	o.Clock, o.BootID, o.Self.Rules = machine("one", time.Hour, 0), "one", "some"
	s.campaign(s.open(o))
	var logged notes
	o.Self = Server{Name: "b", Rules: "others"}
	o.BootID = "two"
	o.Clock, o.Log = machine("two", 0, 3*time.Minute), slog.New(slog.NewTextHandler(&logged, nil))
	s.standBy(s.open(o))
	s.until("it warns", func() bool { return logged.say("other rules") > 0 && logged.say("wall clocks") > 0 })
	if logged.say("other rules") > 1 || logged.say("wall clocks") > 1 {
		t.Error("it warns again")
	}
}
