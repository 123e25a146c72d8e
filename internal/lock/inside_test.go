package lock_test

import (
	"errors"
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// finishes ends a change that began by the title, which must give that error text; "" is none.
func (w *world) finishes(s *lock.Session, path lock.Name, title lock.Title, want string) {
	w.t.Helper()
	ran := false
	err := s.Write(ctx, []lock.Write{{Path: path, Begun: true, Title: title}}, func([]lock.Title) error { ran = true; return nil })
	if ran != (want == "") || want == "" && err != nil {
		w.t.Errorf("%s: %v, and it was done: %t", path, err, ran)
	}
	if want != "" {
		wantText(w.t, err, want)
	}
}

func TestTheInnermostLockSaysWhoWritesInIt(t *testing.T) {
	w := newWorld(t)
	a, b := w.open("a"), w.open("b")
	const group, member = "lies in the lock /locks/g, which you do not hold", "lies in the lock /locks/g/m, which you do not hold"
	w.writes(a, "/locks/g/f", "") // nobody holds it
	g := w.acquire(a, "/locks/g")
	w.writes(b, "/locks/g/f", group)
	w.writes(b, "/locks/g/dir/sub/f", group)
	w.writes(b, "/locks/g", "") // it does not lie in itself
	w.writes(b, "/locks/gg/f", "")
	if got := w.writes(a, "/locks/g/m/f", ""); got.Around != "/locks/g" || got.Grant != g.Token || got.Lock != "" {
		t.Errorf("%+v", got)
	}
	m := w.acquire(b, "/locks/g/m")
	w.writes(a, "/locks/g/m/f", member)
	w.writes(a, "/locks/g/m", "")
	w.writes(a, "/locks/g/f", "")
	w.writes(b, "/locks/g/f", group)
	if got := w.writes(b, "/locks/g/m/sub/f", ""); got.Around != "/locks/g/m" || got.Grant != m.Token {
		t.Errorf("%+v", got)
	}
	w.release(b, "/locks/g/m", nil)
	w.writes(b, "/locks/g/m/f", group)
	w.writes(a, "/locks/g/m/f", "")
	w.writes(w.open("a"), "/locks/g/f", group) // while the acquiring session is there
	w.end(a)
	w.writes(w.open("a"), "/locks/g/f", "")
	w.writes(w.openAt("a", "198.51.100.1"), "/locks/g/f", group)
}

func TestALockWhoseTimeIsOverLetsNobodyWriteInIt(t *testing.T) {
	w := newWorld(t)
	a, b := w.open("a"), w.open("b")
	w.acquire(a, "/a_lock")
	w.clock.Advance(6 * time.Minute)
	w.writes(a, "/a_lock/f", "lies in the lock /a_lock, taken away 0s ago: older than 6m0s") // nobody has ended it yet
	w.writes(b, "/a_lock/f", "lies in the lock /a_lock, which you do not hold")
	w.expires("/a_lock")
	w.writes(b, "/a_lock/f", "") // nobody's
	w.acquire(b, "/a_lock")
	w.clock.Advance(5 * time.Second)
	w.writes(a, "/a_lock/f", "lies in the lock /a_lock, taken away 5s ago: older than 6m0s")
}

func TestNobodyWritesInALockThatIsShared(t *testing.T) {
	w := newWorld(t, lock.Rule{Match: "/l/*", Contention: &lock.Contention{Shared: []string{"a", "b"}}})
	a, b, c := w.open("a"), w.open("b"), w.open("c")
	const alone = "lies in the lock /l/x, which you do not hold alone"
	w.acquire(a, "/l/x")
	w.writes(a, "/l/x/f", alone)
	w.acquire(b, "/l/x")
	w.writes(a, "/l/x/f", alone)
	w.writes(b, "/l/x/f", alone)
	w.writes(c, "/l/x/f", "lies in the lock /l/x, which you do not hold")
	w.release(a, "/l/x", nil)
	w.release(b, "/l/x", nil)
	w.acquire(c, "/l/x") // who is not on the list holds it alone
	w.writes(c, "/l/x/f", "")
}

func TestAWriteInALockEndsByTheHoldThatItBeganWith(t *testing.T) {
	w := newWorld(t)
	a, b := w.open("a"), w.open("b")
	const path = "/a_lock/dir/f"
	began := func() lock.Title {
		t.Helper()
		title, err := a.MayWrite(path)
		if err != nil {
			t.Fatal(err)
		}
		return title
	}
	none := began()
	w.finishes(a, path, none, "")
	w.acquire(a, "/a_lock")
	w.finishes(a, path, none, "lies in the lock /a_lock, which you did not hold when it began")
	w.finishes(b, path, none, "lies in the lock /a_lock, which you do not hold")
	first := began()
	w.finishes(a, path, first, "")
	w.finishes(a, "/elsewhere", first, "lies in the lock /a_lock, which was given back meanwhile") // it was moved out of the lock
	if _, err := a.Renew(ctx, "/a_lock"); err != nil {
		t.Fatal(err)
	}
	w.finishes(a, path, first, "")
	w.release(a, "/a_lock", nil)
	w.finishes(a, path, first, "lies in the lock /a_lock, which was given back meanwhile")
	w.acquire(a, "/a_lock")
	w.finishes(a, path, first, "lies in the lock /a_lock, which was given back meanwhile")
	second := began()
	if err := w.breaks("/a_lock", lock.Owner{Account: "boss"}, "stuck"); err != nil {
		t.Fatal(err)
	}
	w.clock.Advance(3 * time.Second)
	lost := "lies in the lock /a_lock, taken away 3s ago: broken by boss, stuck"
	w.finishes(a, path, second, lost)
	w.acquire(b, "/a_lock")
	w.finishes(a, path, second, lost)
}

func TestAMemberThatIsTakenMeanwhileKeepsAWriteOut(t *testing.T) {
	w := newWorld(t)
	a := w.open("a")
	w.acquire(a, "/locks/g")
	title, err := a.MayWrite("/locks/g/m/f")
	if err != nil {
		t.Fatal(err)
	}
	w.acquire(a, "/locks/g/m")
	w.finishes(a, "/locks/g/m/f", title, "lies in the lock /locks/g/m, which you did not hold when it began")
	inner, err := a.MayWrite("/locks/g/m/f")
	if err != nil {
		t.Fatal(err)
	}
	w.release(a, "/locks/g/m", nil)
	w.finishes(a, "/locks/g/m/f", inner, "lies in the lock /locks/g, which you did not hold when it began")
}

func TestTheNextSessionOfAJobDoesNotEndAWriteOfTheLast(t *testing.T) {
	w := newWorld(t)
	a := w.job("a", "job")
	w.acquire(a, "/a_lock")
	title, err := a.MayWrite("/a_lock/f")
	if err != nil {
		t.Fatal(err)
	}
	b := w.job("a", "job")
	if hold := w.acquire(b, "/a_lock"); hold.Adopted != title.Grant {
		t.Fatalf("%+v was not adopted from %+v", hold, title)
	}
	w.finishes(b, "/a_lock/f", title, "lies in the lock /a_lock, which was given back meanwhile")
	w.writes(b, "/a_lock/f", "")
	if err := a.Write(ctx, []lock.Write{{Path: "/a_lock/f", Begun: true, Title: title}}, func([]lock.Title) error { return nil }); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("it ended: %v", err)
	}
}

// Both count: what protects the path, and what it lies in.
func TestAProtectedPathInALockWantsBothHolds(t *testing.T) {
	w := newWorld(t, lock.Rule{Match: "/g/*"}, guarding("/all/*", "/g/$1/*.tsv"))
	a, b := w.open("a"), w.open("b")
	w.acquire(a, "/g/x")
	w.writes(a, "/g/x/f.tsv", "protected by the lock /all/x, which you do not hold")
	w.writes(a, "/g/x/f", "")
	w.acquire(b, "/all/x")
	w.writes(b, "/g/x/f.tsv", "lies in the lock /g/x, which you do not hold")
	w.release(b, "/all/x", nil)
	hold := w.acquire(a, "/all/x")
	if got := w.writes(a, "/g/x/f.tsv", ""); got.Lock != "/all/x" || got.Token != hold.Token || got.Around != "/g/x" {
		t.Errorf("%+v", got)
	}
}

func TestSeveralWritesAreAllOrNone(t *testing.T) {
	w := newWorld(t)
	a, b := w.open("a"), w.open("b")
	w.acquire(a, "/a_lock")
	w.acquire(b, "/b_lock")
	for _, paths := range [][]lock.Name{{"/a_lock/f", "/b_lock/f"}, {"/b_lock/f", "/a_lock/f"}} {
		writes := []lock.Write{{Path: paths[0]}, {Path: paths[1]}}
		err := a.Write(ctx, writes, func([]lock.Title) error { t.Error("written"); return nil })
		wantText(t, err, "lies in the lock /b_lock, which you do not hold")
		w.release(b, "/b_lock", nil) // nothing is kept that was claimed for them
		w.acquire(b, "/b_lock")
	}
	var got []lock.Title
	err := a.Write(ctx, []lock.Write{{Path: "/a_lock/f"}, {Path: "/f"}}, func(titles []lock.Title) error { got = titles; return nil })
	if err != nil || len(got) != 2 || got[0].Around != "/a_lock" || got[1] != (lock.Title{}) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestAGrantOfALockAboveThePathWaitsForAWrite(t *testing.T) {
	for _, path := range []lock.Name{"/a_lock/f", "/a_lock/dir/sub/f"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorldIn(t)
			a, b := w.open("a"), w.open("b")
			gate, written, got := make(chan struct{}), make(chan error, 1), make(chan error, 1)
			go func() {
				written <- a.Write(ctx, []lock.Write{{Path: path}}, func([]lock.Title) error { <-gate; return nil })
			}()
			synctest.Wait()
			go func() { _, err := b.Acquire(ctx, "/a_lock"); got <- err }()
			w.acquire(b, "/a_locks_lock") // another name need not wait
			synctest.Wait()
			if len(got) > 0 {
				t.Fatal("granted in the middle of a write")
			}
			close(gate)
			if err := errors.Join(<-written, <-got); err != nil {
				t.Fatal(err)
			}
			w.writes(a, path, "lies in the lock /a_lock, which you do not hold")
		})
	}
}

// A lock that no rule makes one any more is one until it ends.
func TestALockWithoutARuleIsOneUntilItEnds(t *testing.T) {
	w := newWorld(t)
	a, b := w.open("a"), w.open("b")
	w.acquire(a, "/a_lock")
	if err := w.SetRules(ctx, rulesOf(t, lock.Rule{Match: "/other/*"})); err != nil {
		t.Fatal(err)
	}
	w.writes(b, "/a_lock/f", "lies in the lock /a_lock, which you do not hold")
	if got := w.writes(a, "/a_lock/f", ""); got.Around != "/a_lock" {
		t.Errorf("%+v", got)
	}
	if !b.Concerned("/a_lock/dir/f") {
		t.Error("nobody would ask")
	}
	w.release(a, "/a_lock", nil)
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
	if err := w.SetRules(ctx, rulesOf(t, phoneRules()...)); err != nil {
		t.Fatal(err)
	}
	if !s.Concerned("/f") {
		t.Error("any path may be protected")
	}
}
