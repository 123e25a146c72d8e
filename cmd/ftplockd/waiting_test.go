package main

import (
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/config"
	"github.com/ftplockd/ftplockd/internal/lock"
)

func TestLocksSaysHowManyWait(t *testing.T) {
	body := `[{"name":"/locks/x","holder":"a","address":"192.0.2.1","session":"1-1","token":7,"age_seconds":12,"expires_in_seconds":48,"waiting":3}]`
	var b strings.Builder
	if err := showLocks(&b, []byte(body)); err != nil {
		t.Fatal(err)
	}
	want := "NAME      HOLDER  ADDRESS    SESSION  AGE  EXPIRES IN  WAITING  TOKEN\n" +
		"/locks/x  a       192.0.2.1  1-1      12s  48s         3        7\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

func TestViewsSayHowManyWaitAndWhoShares(t *testing.T) {
	views := holdViews([]lock.Status{{Name: "/locks/x", Waiting: 2, Holds: []lock.Hold{{Shared: true}, {Shared: true}}}}, lock.Instant{})
	for _, v := range views {
		if v.Waiting != 2 || !v.Shared {
			t.Errorf("got %+v", v)
		}
	}
	if len(views) != 2 {
		t.Errorf("%d views", len(views))
	}
}

func TestEveryKeyOfContentionReachesTheTable(t *testing.T) {
	c := config.Default()
	c.Locks.ReadersShare = false
	c.Rules[0].Wait.Duration, c.Rules[0].Queue, c.Rules[0].QueueHold.Duration = time.Second, config.QueueOff, 2*time.Second
	c.Rules[0].Reentrant, c.Rules[0].Shared, c.Rules[0].Limit = true, []string{"a"}, 3
	got := rulesOf(c)[0].Contention
	if got.Wait != time.Second || got.Queue != lock.QueueOff || got.QueueHold != 2*time.Second ||
		!got.Reentrant || len(got.Shared) != 1 || got.ReadersShare || got.Limit != 3 {
		t.Errorf("got %+v", got)
	}
	if defaults := rulesOf(config.Default())[0].Contention; defaults.Queue != lock.QueueOff || !defaults.ReadersShare || defaults.QueueHold != 15*time.Second {
		t.Errorf("the defaults are %+v", defaults)
	}
}
