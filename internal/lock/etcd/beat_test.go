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

// age is how old a hold is on a server's clock; wall: the moment is of a boot that the server does not know.
func age(h lock.Hold, now lock.Instant) (age time.Duration, wall bool) {
	return now.Boot - h.Acquired.Boot, h.Acquired.BootID != now.BootID
}

// Three servers whose clocks have nothing in common follow each other. Ages stay right within the time between two beats.
func TestAgesStayRightOverFailovers(t *testing.T) {
	s := newScene(t, 1)
	o := s.options()
	clocks := []*locktest.FakeClock{machine("one", 1000*time.Hour, 0), machine("two", time.Hour, -24*time.Hour), machine("three", 50*time.Hour, time.Hour)}
	var clusters []*Cluster
	var next []*standby
	active := make([]*term, len(clocks))
	for i, clock := range clocks {
		o.Self.Name, o.Clock = clock.Now().BootID, clock
		clusters = append(clusters, s.open(o))
		if i == 0 {
			active[0] = s.campaign(clusters[0])
			next = append(next, nil)
			continue
		}
		if i == 2 {
			break // the third stands by when the first is gone, and knows its clock only by the second
		}
		next = append(next, s.standBy(clusters[i]))
	}
	hold := s.Hold("ada")
	hold.Acquired = clocks[0].Now()
	hold.Renewed = hold.Acquired
	begun := time.Now()
	if _, err := s.Commit(active[0], "/a_lock", 0, hold); err != nil {
		t.Fatal(err)
	}
	s.knows(clusters[1], "one")
	s.resign(active[0])
	active[1] = s.takesOver(next[1])
	check := func(i int) {
		t.Helper()
		record, err := active[i].Get(t.Context(), "/a_lock")
		if err != nil {
			t.Fatal(err)
		}
		got, wall := age(record.Holds[0], clocks[i].Now())
		want := time.Since(begun)
		if wall || got > want || got < want-patience/2 {
			t.Errorf("on %s it is %v old, by the wall clock: %v; want %v", clocks[i].Now().BootID, got, wall, want)
		}
		if got, _ := age(s.Records(active[i])["/a_lock"].Holds[0], clocks[i].Now()); got > time.Since(begun) || got < want-patience/2 {
			t.Errorf("All says on %s that it is %v old, want %v", clocks[i].Now().BootID, got, want)
		}
	}
	check(1)
	third := s.standBy(clusters[2])
	s.knows(clusters[2], "two")
	s.knows(clusters[2], "one")
	s.resign(active[1])
	active[2] = s.takesOver(third)
	check(2)
}

// knows waits until a standby can map moments of a boot.
func (s *scene) knows(c *Cluster, id text) {
	s.Helper()
	s.until("it knows the clock of "+string(id), func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, o := range c.boots.offsets {
			if o.BootID == id {
				return true
			}
		}
		return false
	})
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
	for i := range 3 * maxBoots {
		see(14*time.Second, 115*time.Second, earlier(text(rune('A'+i)), 0))
	}
	if len(b.offsets) != maxBoots {
		t.Errorf("%d boots are known", len(b.offsets))
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
