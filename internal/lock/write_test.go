package lock_test

import (
	"errors"
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

func phoneRules() []lock.Rule {
	return []lock.Rule{article, guarding("/all/*", "/d/$1/*.tsv"), {Match: "/locks/**", Contention: &anyone}}
}

const (
	notHeld  = "which you do not hold"
	notBegun = "which you did not hold when it began"
	givenUp  = "which was given back meanwhile"
	otherJob = "which another connection of your account took: say SITE LOCK AS with the same word in each connection, before MKD"
)

// dependents are what /phone_lock has a say in: it protects the one path, and the other one lies in it.
var dependents = []struct {
	path lock.Name
	text string
}{{"/phone.tsv", "protected by the lock /phone_lock, "}, {"/phone_lock/dir/f", "lies in the lock /phone_lock, "}}

// writes has the session change the path, which must give that error text; "" is none.
func (w *world) writes(s *lock.Session, path lock.Name, want string) lock.Title {
	w.t.Helper()
	title, may := s.MayWrite(path)
	if want == "" {
		w.ok(may)
	} else {
		wantText(w.t, may, want)
	}
	w.finishes(s, lock.Write{Path: path}, want)
	return title
}

// finishes makes a change, which must give that error text; "" is none.
func (w *world) finishes(s *lock.Session, change lock.Write, want string) {
	w.t.Helper()
	ran := false
	err := s.Write(ctx, []lock.Write{change}, func([]lock.Title) error { ran = true; return nil })
	if ran != (want == "") || want == "" && err != nil {
		w.t.Errorf("%s: %v, and it was done: %t", change.Path, err, ran)
	}
	if want != "" {
		wantText(w.t, err, want)
		if !errors.Is(err, fs.ErrPermission) && !errors.Is(err, lock.ErrEnded) {
			w.t.Errorf("%v does not match ErrPermission", err)
		}
	}
}

func TestAJobOfSeveralConnectionsWritesByItsNonce(t *testing.T) {
	w := newWorld(t, phoneRules()...)
	one := w.job("a", "job")
	w.acquire(one, "/phone_lock")
	w.writes(w.job("a", "job"), "/phone.tsv", "")
	w.end(one)
	w.writes(w.job("a", "job"), "/phone.tsv", "")
	w.writes(w.job("a", "other"), "/phone.tsv", "protected by the lock /phone_lock, "+otherJob)
	w.writes(w.job("b", "job"), "/phone.tsv", "protected by the lock /phone_lock, "+notHeld)
	account := guarding("/l/*", "/d/$1")
	account.Protection.WriteAs = lock.WriteAsAccount
	w.reload(account)
	w.end(w.holder("a", "/l/x"))
	w.writes(w.open("a"), "/d/x", "")
}

func TestOnlyTheHolderMayWrite(t *testing.T) {
	w := newWorld(t, phoneRules()...)
	a, b := w.open("a"), w.open("b")
	const no = "protected by the lock /phone_lock, " + notHeld
	w.writes(a, "/phone.tsv", no)
	if title := w.writes(a, "/phone.txt", ""); title != (lock.Title{}) {
		t.Errorf("nothing protects it: %+v", title)
	}
	hold := w.acquire(a, "/phone_lock")
	want := lock.Title{Lock: "/phone_lock", Token: hold.Token, Owner: a.Owner()}
	if title := w.writes(a, "/phone.tsv", ""); title != want {
		t.Errorf("%+v", title)
	}
	w.writes(a, "/other.tsv", "protected by the lock /other_lock, "+notHeld)
	w.writes(b, "/phone.tsv", no)
	w.writes(w.open("a"), "/phone.tsv", no) // the same account, while the acquiring session is there
	w.end(a)
	w.writes(a, "/phone.tsv", lock.ErrEnded.Error())
	again := w.open("a")
	w.writes(again, "/phone.tsv", "protected by the lock /phone_lock, "+otherJob) // it may give it back, and no more
	w.release(again, "/phone_lock", nil)
	w.writes(again, "/phone.tsv", no)
}

func TestALostLockIsNamedWithTheReason(t *testing.T) {
	for _, d := range dependents {
		w := newWorld(t, phoneRules()...)
		a := w.holder("a", "/phone_lock")
		w.clock.Advance(6 * time.Minute)
		w.writes(a, d.path, d.text+"taken away 0s ago: older than 6m0s") // nobody has ended it yet, and it does not count any more
		w.writes(w.open("b"), d.path, d.text+notHeld)
		w.expires("/phone_lock")
		w.holder("b", "/phone_lock")
		w.clock.Advance(12 * time.Second)
		w.writes(a, d.path, d.text+"taken away 12s ago: older than 6m0s")
	}
}

func TestAWriteNeedsTheHoldThatItBeganWith(t *testing.T) {
	for _, d := range dependents {
		w := newWorld(t, phoneRules()...)
		a, b := w.job("a", "job"), w.job("a", "job")
		change := lock.Write{Path: d.path, Begun: true} // by no lock
		begins := func(s *lock.Session) {
			t.Helper()
			change.Title = w.writes(s, d.path, "")
			w.finishes(s, change, "")
		}
		w.acquire(a, "/phone_lock")
		w.finishes(a, change, d.text+notBegun)
		w.finishes(a, lock.Write{Path: "/other.txt", Begun: true}, "")
		w.finishes(a, lock.Write{Path: "/other.tsv", Begun: true}, "protected by the lock /other_lock, "+notHeld)
		begins(a)
		_, err := a.Renew(ctx, "/phone_lock")
		w.ok(err)
		w.finishes(a, change, "")
		w.release(a, "/phone_lock", nil)
		w.acquire(a, "/phone_lock")
		w.finishes(a, change, d.text+givenUp)
		begins(a)
		if hold := w.acquire(b, "/phone_lock"); hold.Adopted != change.Title.Token+change.Title.Grant { // one of them is 0
			t.Errorf("%+v was not adopted from %+v", hold, change.Title)
		}
		w.finishes(b, change, d.text+givenUp)
		w.finishes(a, change, d.text+givenUp)
		begins(b)
		w.ok(w.breaks("/phone_lock", lock.Owner{Account: "boss"}, "stuck"))
		w.clock.Advance(3 * time.Second)
		w.finishes(b, change, d.text+"taken away 3s ago: broken by boss, stuck")
		w.acquire(b, "/phone_lock")
		w.finishes(b, change, d.text+"taken away 3s ago: broken by boss, stuck")
	}
}

func TestEveryLockOfAPathCounts(t *testing.T) {
	w := newWorld(t, phoneRules()...)
	a, b := w.open("a"), w.open("b")
	const path, first = "/d/x/f.tsv", "protected by the lock /d/x/f_lock, " + notHeld
	w.writes(a, path, first)
	w.acquire(a, "/all/x")
	if got := w.writes(a, path, ""); got.Lock != "/all/x" {
		t.Error(got)
	}
	w.acquire(b, "/d/x/f_lock")
	w.writes(a, path, first)
	w.writes(b, path, "protected by the lock /all/x, "+notHeld)
	w.release(b, "/d/x/f_lock", nil)
	w.acquire(a, "/d/x/f_lock")
	if got := w.writes(a, path, ""); got.Lock != "/d/x/f_lock" {
		t.Error(got)
	}
}

func TestASharedHoldIsNoTitle(t *testing.T) {
	rule := guarding("/l/*", "/d/$1")
	rule.Contention = &lock.Contention{Shared: []string{"a", "b"}}
	for path, text := range map[lock.Name]string{"/d/x": "protected by the lock /l/x, ", "/l/x/f": "lies in the lock /l/x, "} {
		w := newWorld(t, rule)
		a, c := w.holder("a", "/l/x"), w.open("c")
		w.writes(a, path, text+notHeld+" alone") // though nobody shares it
		b := w.holder("b", "/l/x")
		w.writes(a, path, text+notHeld+" alone")
		w.writes(b, path, text+notHeld+" alone")
		w.writes(c, path, text+notHeld)
		w.release(a, "/l/x", nil)
		w.release(b, "/l/x", nil)
		w.acquire(c, "/l/x") // who is not on the list holds it alone
		w.writes(c, path, "")
	}
}

// No lock that protects the path, or that it lies in.
func TestNobodyGetsAnotherLockOfThePathDuringAWrite(t *testing.T) {
	for path, other := range map[lock.Name]lock.Name{"/d/x/f.tsv": "/d/x/f_lock", "/a_lock/f": "/a_lock", "/b_lock/dir/sub/f": "/b_lock"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorldIn(t, phoneRules()...)
			a, b := w.holder("a", "/all/x"), w.open("b")
			gate := make(chan struct{})
			written := starts(func() error {
				return a.Write(ctx, []lock.Write{{Path: path}}, func([]lock.Title) error { <-gate; return nil })
			})
			got := starts(acquireOf(b, other))
			w.acquire(b, other+"s_lock") // another name need not wait
			if len(got) > 0 {
				t.Fatal("granted in the middle of a write")
			}
			close(gate)
			w.ok(errors.Join(<-written, <-got))
			if _, err := a.MayWrite(path); !errors.Is(err, fs.ErrPermission) {
				t.Error(err)
			}
		})
	}
}

// It goes by the rules that are in force then.
func TestAWriteWaitsForAChangeUnderWay(t *testing.T) {
	for _, reloads := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorldIn(t, phoneRules()...)
			a, b := w.holder("a", "/all/x"), w.open("b")
			gate := w.blocked("/d/x/f_lock")
			got := starts(acquireOf(b, "/d/x/f_lock"))
			written := starts(func() error {
				return a.Write(ctx, []lock.Write{{Path: "/d/x/f.tsv"}}, func([]lock.Title) error { return nil })
			})
			if len(written) > 0 {
				t.Error("did not wait:", <-written)
			}
			reloaded := make(chan error, 1)
			if reloads {
				unprotected := rulesOf(t, lock.Rule{Match: "**/*_lock"})
				reloaded = starts(func() error { return w.SetRules(ctx, unprotected) })
			} else {
				reloaded <- nil
			}
			close(gate)
			w.ok(errors.Join(<-got, <-reloaded))
			if reloads {
				w.ok(<-written)
			} else {
				wantText(t, <-written, "protected by the lock /d/x/f_lock, "+notHeld)
			}
		})
	}
}

func TestTheInnermostLockSaysWhoWritesInIt(t *testing.T) {
	w := newWorld(t)
	a, b := w.open("a"), w.open("b")
	const group, member = "lies in the lock /locks/g, ", "lies in the lock /locks/g/m, "
	w.writes(a, "/locks/g/f", "") // nobody holds it
	g := w.acquire(a, "/locks/g")
	w.writes(b, "/locks/g/f", group+notHeld)
	w.writes(b, "/locks/g/dir/sub/f", group+notHeld)
	w.writes(b, "/locks/g", "") // it does not lie in itself
	w.writes(b, "/locks/gg/f", "")
	outer := w.writes(a, "/locks/g/m/f", "")
	if outer.Around != "/locks/g" || outer.Grant != g.Token || outer.Lock != "" {
		t.Errorf("%+v", outer)
	}
	w.finishes(a, lock.Write{Path: "/elsewhere", Begun: true, Title: outer}, group+givenUp) // it was moved out of the lock
	m := w.acquire(b, "/locks/g/m")
	w.writes(a, "/locks/g/m/f", member+notHeld)
	w.writes(a, "/locks/g/m", "")
	w.writes(a, "/locks/g/f", "")
	w.writes(b, "/locks/g/f", group+notHeld)
	if got := w.writes(b, "/locks/g/m/sub/f", ""); got.Around != "/locks/g/m" || got.Grant != m.Token {
		t.Errorf("%+v", got)
	}
	w.release(b, "/locks/g/m", nil)
	w.writes(b, "/locks/g/m/f", group+notHeld)
	w.acquire(a, "/locks/g/m")
	w.finishes(a, lock.Write{Path: "/locks/g/m/f", Begun: true, Title: outer}, member+notBegun)
	inner := w.writes(a, "/locks/g/m/f", "")
	w.release(a, "/locks/g/m", nil)
	w.finishes(a, lock.Write{Path: "/locks/g/m/f", Begun: true, Title: inner}, group+notBegun)
	w.writes(w.open("a"), "/locks/g/f", group+notHeld) // while the acquiring session is there
	w.end(a)
	w.writes(w.open("a"), "/locks/g/f", "")
	w.writes(w.openAt("a", "198.51.100.1"), "/locks/g/f", group+notHeld)
}

// Both count: what protects the path, and what it lies in.
func TestAProtectedPathInALockWantsBothHolds(t *testing.T) {
	w := newWorld(t, lock.Rule{Match: "/g/*"}, guarding("/all/*", "/g/$1/*.tsv"))
	a := w.holder("a", "/g/x")
	w.writes(a, "/g/x/f.tsv", "protected by the lock /all/x, "+notHeld)
	w.writes(a, "/g/x/f", "")
	b := w.holder("b", "/all/x")
	w.writes(b, "/g/x/f.tsv", "lies in the lock /g/x, "+notHeld)
	w.release(b, "/all/x", nil)
	hold := w.acquire(a, "/all/x")
	if got := w.writes(a, "/g/x/f.tsv", ""); got.Lock != "/all/x" || got.Token != hold.Token || got.Around != "/g/x" {
		t.Errorf("%+v", got)
	}
}

func TestSeveralWritesAreAllOrNone(t *testing.T) {
	w := newWorld(t)
	a, b := w.holder("a", "/a_lock"), w.holder("b", "/b_lock")
	for _, paths := range [][]lock.Name{{"/a_lock/f", "/b_lock/f"}, {"/b_lock/f", "/a_lock/f"}} {
		writes := []lock.Write{{Path: paths[0]}, {Path: paths[1]}}
		err := a.Write(ctx, writes, func([]lock.Title) error { t.Error("written"); return nil })
		wantText(t, err, "lies in the lock /b_lock, "+notHeld)
		w.release(b, "/b_lock", nil) // nothing is kept that was claimed for them
		w.acquire(b, "/b_lock")
	}
	var got []lock.Title
	err := a.Write(ctx, []lock.Write{{Path: "/a_lock/f"}, {Path: "/f"}}, func(titles []lock.Title) error { got = titles; return nil })
	if err != nil || len(got) != 2 || got[0].Around != "/a_lock" || got[1] != (lock.Title{}) {
		t.Errorf("%+v, %v", got, err)
	}
}

// A lock that no rule makes one any more is one until it ends.
func TestALockWithoutARuleIsOneUntilItEnds(t *testing.T) {
	w := newWorld(t)
	a, b := w.holder("a", "/a_lock"), w.open("b")
	w.reload(lock.Rule{Match: "/other/*"})
	w.writes(b, "/a_lock/f", "lies in the lock /a_lock, "+notHeld)
	w.writes(a, "/a_lock/f", "")
	if !b.Concerned("/a_lock/dir/f") {
		t.Error("nobody would ask")
	}
	w.refused(b, "/a_lock", lock.ErrHeld)
	w.release(a, "/a_lock", nil)
	w.refused(b, "/a_lock", lock.ErrNoRule)
	w.writes(b, "/a_lock/f", "")
	if b.Concerned("/a_lock/dir/f") {
		t.Error("it concerns nobody any more")
	}
}

func TestWhichPathsConcernLocks(t *testing.T) {
	w := newWorld(t)
	s := w.open("a")
	for path, want := range map[lock.Name]bool{
		"/": false, "/f": false, "/dir/f": false, "/a_lock": false, "/dir/a_lock": false, "/locks": false, "/locks/a": false,
		"/a_lock/f": true, "/a_lock/dir/sub/f": true, "/locks/a/f": true, "/dir/a_lock/f": true,
	} {
		if got := s.Concerned(path); got != want {
			t.Errorf("%s: %t", path, got)
		}
	}
	if w.reload(phoneRules()...); !s.Concerned("/f") {
		t.Error("any path may be protected")
	}
}
