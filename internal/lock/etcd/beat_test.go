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
	o.Clock = one
	c := s.open(o)
	active := s.campaign(c)
	hold := s.Hold("ada")
	hold.Acquired = one.Now()
	if _, err := s.Commit(active, "/a_lock", 0, hold); err != nil {
		t.Fatal(err)
	}
	s.until("there is a beat", func() bool { status, err := c.Status(t.Context()); return err == nil && status.Beat >= 0 })
	s.resign(active)
	two := machine("two", 2*time.Hour, 0)
	o.Clock = two
	next := s.campaign(s.open(o))
	if got := s.Records(next)["/a_lock"].Holds[0].Acquired; got.BootID != "one" || got.Boot != hold.Acquired.Boot {
		t.Errorf("it was acquired at %+v, want %+v", got, hold.Acquired)
	}
}

// boots as such: what a standby makes of a sequence of beats.
func TestTheSmallestOffsetCounts(t *testing.T) {
	b := boots{own: "own"}
	revision := int64(0)
	see := func(boot, now time.Duration, earlier ...offset) {
		revision++
		b.see(kv(encode(beat{BootID: "other", Boot: boot, Earlier: earlier}), revision), lock.Instant{Boot: now, BootID: "own"})
	}
	see(10*time.Second, time.Hour) // it may be old
	if got := b.local(lock.Instant{Boot: 1, BootID: "other"}); got.BootID != "other" {
		t.Errorf("the first beat counts: %+v", got)
	}
	see(11*time.Second, 113*time.Second)
	see(12*time.Second, 112*time.Second, earlier("older", -5*time.Second), earlier("own", 7))
	see(13*time.Second, 115*time.Second)
	b.see(kv(encode(beat{BootID: "other", Boot: 90 * time.Second}), revision), lock.Instant{Boot: 91, BootID: "own"}) // the same one
	for from, want := range map[string]time.Duration{"other": 101 * time.Second, "older": 96 * time.Second, "own": time.Second} {
		if got := b.local(lock.Instant{Boot: time.Second, BootID: from}); got.Boot != want || got.BootID != "own" {
			t.Errorf("of %s: %+v, want %v", from, got, want)
		}
	}
	// A server that was started again on the same machine knows at once what the one before knew.
	again := boots{own: "other"}
	again.see(kv(encode(beat{BootID: "other", Boot: 1, Earlier: []offset{earlier("older", time.Second)}}), 1), lock.Instant{Boot: time.Hour, BootID: "other"})
	if got := again.local(lock.Instant{Boot: 1, BootID: "older"}); got.Boot != time.Second+1 || got.BootID != "other" {
		t.Errorf("on the same machine: %+v", got)
	}
}

func earlier(id text, add time.Duration) offset { return offset{BootID: id, Add: add} }

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
	o.Clock, o.Self.Rules = machine("one", time.Hour, 0), "some"
	s.campaign(s.open(o))
	var logged notes
	o.Self = Server{Name: "b", Rules: "others"}
	o.Clock, o.Log = machine("two", 0, 3*time.Minute), slog.New(slog.NewTextHandler(&logged, nil))
	s.standBy(s.open(o))
	s.until("it warns", func() bool { return logged.say("other rules") > 0 && logged.say("wall clocks") > 0 })
	if logged.say("other rules") > 1 || logged.say("wall clocks") > 1 {
		t.Error("it warns again")
	}
}
