package lock_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

func jobRules(advises bool) []lock.Rule {
	return []lock.Rule{
		{Match: "/www/*/.lock", MaxAge: time.Hour, Grace: 3 * time.Second, Protection: &lock.Protection{Paths: []string{"/www/$1/**"}, Automatic: true, Advises: advises}},
		{Match: "/www/*/db.lock", Protection: &lock.Protection{Paths: []string{"/www/$1/db/*"}}},
	}
}

func TestTheHoldOfAJobAllowsWritesOfItsClients(t *testing.T) {
	table := newTable(t, lock.Options{Disk: &locktest.Disk{}}, jobRules(false)...)
	ctx, o := t.Context(), lock.Owner{Account: "a", Address: "10.0.0.1"}
	held, client := table.OpenJob(o), table.Open(o)
	h, _, _, err := held.AcquireOrWait(ctx, "/www/1/.lock", nil)
	if err != nil || !h.Job || h.Directory != (lock.DirectoryID{}) || len(table.Children("/www/1")) != 0 {
		t.Fatalf("%+v, %v", h, err)
	}
	if err := client.Release(ctx, "/www/1/.lock"); err == nil {
		t.Error("a client releases the hold of a job")
	}
	write := func(under *lock.Session, path lock.Name) error {
		return client.Write(ctx, []lock.Write{{Path: path, Under: under}}, func([]lock.Permit) error { return nil })
	}
	if write(nil, "/www/1/x") == nil || write(held, "/www/1/db/x") == nil {
		t.Error("a write without the lock of its path")
	}
	if err := write(held, "/www/1/x"); err != nil {
		t.Error(err)
	}
	held.Close(ctx)
	if err := client.Release(ctx, "/www/1/.lock"); err == nil {
		t.Error("a client of the same account and address releases the hold of a job that has ended")
	}
	if next := table.OpenJob(lock.Owner{Account: "a", Address: "10.0.0.2"}); next != nil {
		if _, _, _, err := next.AcquireOrWait(ctx, "/www/1/.lock", nil); err == nil {
			t.Error("a job of another address adopts the hold")
		}
	}
	if _, adopted, _, err := table.OpenJob(o).AcquireOrWait(ctx, "/www/1/.lock", nil); err != nil || adopted != h.Token {
		t.Errorf("the next session of the job: token %d, %v", adopted, err)
	}
}

func TestEndAt(t *testing.T) {
	clock, log := locktest.NewFakeClock(), locktest.NewMemory()
	table := newTable(t, lock.Options{Clock: clock, Log: log}, jobRules(false)...)
	s := table.OpenJob(lock.Owner{Account: "a"})
	const name = "/www/1/.lock"
	if s.EndAt(name, clock.Now().Boot, lock.CauseUnused) {
		t.Error("a session without a hold has one")
	}
	if _, _, _, err := s.AcquireOrWait(t.Context(), name, nil); err != nil {
		t.Fatal(err)
	}
	pass := func(d time.Duration) { clock.Advance(d); table.Expire(context.Background()) }
	s.EndAt(name, clock.Now().Boot+2*time.Second, lock.CauseUnused)
	s.EndAt(name, 0, "")
	if pass(time.Minute); !table.Held(name) {
		t.Error("it ended though the end was removed")
	}
	s.EndAt(name, clock.Now().Boot+2*time.Second, lock.CauseUnused)
	if pass(2 * time.Second); table.Held(name) || log.Records()[len(log.Records())-1].Cause != lock.CauseUnused {
		t.Error("it did not end")
	}
}

func TestRulesThatYieldOrAdvise(t *testing.T) {
	for _, advises := range []bool{false, true} {
		rules, err := lock.NewRules(jobRules(advises))
		if err != nil {
			t.Fatal(err)
		}
		for path, want := range map[lock.Name]lock.Name{"/www/1/x": "/www/1/.lock", "/www/1": "/www/1/.lock", "/www/1/db/x": "/www/1/db.lock"} {
			guards, _ := rules.Guards(path)
			yielding := rules.AutomaticLock(path)
			if explicit := want.Base() == "db.lock"; explicit && yielding != "" || !explicit && yielding != want {
				t.Errorf("%s yields to %q", path, yielding)
			} else if explicit || !advises {
				if !slices.Equal(guards, []lock.Name{want}) {
					t.Errorf("%s has the locks %q", path, guards)
				}
			} else if len(guards) > 0 {
				t.Errorf("advice protects %s by %q", path, guards)
			}
		}
	}
}
