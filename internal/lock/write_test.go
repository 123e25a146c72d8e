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
	return []lock.Rule{guarding("**/*_lock", "$1/$2.tsv"), guarding("/all/*", "/d/$1/*.tsv")}
}

// writes has the session change the path, which must give that error text; "" is none.
func (w *world) writes(s *lock.Session, path lock.Name, want string) lock.Title {
	w.t.Helper()
	var title lock.Title
	err := s.Write(ctx, []lock.Write{{Path: path}}, func(titles []lock.Title) error { title = titles[0]; return nil })
	_, may := s.MayWrite(path)
	for _, err := range []error{err, may} {
		if want == "" && err != nil {
			w.t.Errorf("%s: %v", path, err)
		}
		if want != "" {
			wantText(w.t, err, want)
			if !errors.Is(err, fs.ErrPermission) && !errors.Is(err, lock.ErrEnded) {
				w.t.Errorf("%v does not match ErrPermission", err)
			}
		}
	}
	return title
}

const otherJob = "which another connection of your account took: say SITE LOCK AS with the same word in each connection, before MKD"

func TestAJobOfSeveralConnectionsWritesByItsNonce(t *testing.T) {
	w := newWorld(t, phoneRules()...)
	one := w.job("a", "job")
	w.acquire(one, "/phone_lock")
	w.writes(w.job("a", "job"), "/phone.tsv", "")
	w.end(one)
	w.writes(w.job("a", "job"), "/phone.tsv", "")
	w.writes(w.job("a", "other"), "/phone.tsv", "protected by the lock /phone_lock, "+otherJob)
	w.writes(w.job("b", "job"), "/phone.tsv", "protected by the lock /phone_lock, which you do not hold")
}

func TestOnlyTheHolderMayWrite(t *testing.T) {
	w := newWorld(t, phoneRules()...)
	a, b := w.open("a"), w.open("b")
	const no = "protected by the lock /phone_lock, which you do not hold"
	w.writes(a, "/phone.tsv", no)
	if title := w.writes(a, "/phone.txt", ""); title != (lock.Title{}) {
		t.Errorf("nothing protects it: %+v", title)
	}
	hold := w.acquire(a, "/phone_lock")
	want := lock.Title{Lock: "/phone_lock", Token: hold.Token, Owner: a.Owner()}
	if title := w.writes(a, "/phone.tsv", ""); title != want {
		t.Errorf("%+v", title)
	}
	w.writes(a, "/other.tsv", "protected by the lock /other_lock, which you do not hold")
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
	w := newWorld(t, phoneRules()...)
	a := w.open("a")
	w.acquire(a, "/phone_lock")
	w.clock.Advance(6 * time.Minute)
	// Nobody has ended it yet, and it does not count any more.
	w.writes(a, "/phone.tsv", "protected by the lock /phone_lock, taken away 0s ago: older than 6m0s")
	w.expires("/phone_lock")
	w.clock.Advance(12 * time.Second)
	w.writes(a, "/phone.tsv", "protected by the lock /phone_lock, taken away 12s ago: older than 6m0s")
	w.acquire(w.open("b"), "/phone_lock")
	w.writes(a, "/phone.tsv", "protected by the lock /phone_lock, taken away 12s ago: older than 6m0s")
}

func TestAWriteNeedsTheHoldThatItBeganWith(t *testing.T) {
	w := newWorld(t, phoneRules()...)
	a := w.open("a")
	finish := func(title lock.Title, path lock.Name, want string) {
		t.Helper()
		ran := false
		err := a.Write(ctx, []lock.Write{{Path: path, Begun: true, Title: title}}, func([]lock.Title) error { ran = true; return nil })
		if ran != (want == "") || want == "" && err != nil {
			t.Fatal(err)
		}
		if want != "" {
			wantText(t, err, want)
		}
	}
	w.acquire(a, "/phone_lock")
	title, err := a.MayWrite("/phone.tsv")
	if err != nil {
		t.Fatal(err)
	}
	finish(title, "/phone.tsv", "")
	finish(title, "/other.tsv", "protected by the lock /other_lock, which you do not hold")
	finish(lock.Title{}, "/other.txt", "")
	finish(lock.Title{}, "/phone.tsv", "protected by the lock /phone_lock, which you did not hold when it began")
	if _, err := a.Renew(ctx, "/phone_lock"); err != nil {
		t.Fatal(err)
	}
	finish(title, "/phone.tsv", "")
	w.release(a, "/phone_lock", nil)
	w.acquire(a, "/phone_lock")
	finish(title, "/phone.tsv", "protected by the lock /phone_lock, which was given back meanwhile")
	title, _ = a.MayWrite("/phone.tsv")
	w.clock.Advance(7 * time.Minute)
	w.expires("/phone_lock")
	w.clock.Advance(5 * time.Second)
	w.acquire(a, "/phone_lock")
	finish(title, "/phone.tsv", "protected by the lock /phone_lock, taken away 5s ago: older than 6m0s")
}

func TestEveryLockOfAPathCounts(t *testing.T) {
	w := newWorld(t, phoneRules()...)
	a, b := w.open("a"), w.open("b")
	const path = "/d/x/f.tsv"
	first := "protected by the lock /d/x/f_lock, which you do not hold"
	w.writes(a, path, first)
	w.acquire(a, "/all/x")
	if got := w.writes(a, path, ""); got.Lock != "/all/x" {
		t.Error(got)
	}
	w.acquire(b, "/d/x/f_lock")
	w.writes(a, path, first)
	w.writes(b, path, "protected by the lock /all/x, which you do not hold")
	w.release(b, "/d/x/f_lock", nil)
	w.acquire(a, "/d/x/f_lock")
	if got := w.writes(a, path, ""); got.Lock != "/d/x/f_lock" {
		t.Error(got)
	}
}

func TestASharedHoldIsNoTitle(t *testing.T) {
	w := newWorld(t, phoneRules()...)
	a := w.open("a")
	hold := w.acquire(a, "/phone_lock")
	other := hold
	other.Token, other.Owner = 0, lock.Owner{Account: "b", Session: 99}
	event := w.store.Outside("/phone_lock", lock.CauseAcquire, hold, other)
	lock.TakeOver(w.Table, event)
	w.writes(a, "/phone.tsv", "protected by the lock /phone_lock, which you do not hold alone")
}

func TestASharedHoldIsNoTitleThoughNobodySharesIt(t *testing.T) {
	rule := guarding("/l/*", "/d/$1")
	rule.Contention = &lock.Contention{Shared: []string{"a"}}
	w := newWorld(t, rule)
	a, b := w.open("a"), w.open("b")
	w.acquire(a, "/l/x")
	w.writes(a, "/d/x", "protected by the lock /l/x, which you do not hold alone")
	w.release(a, "/l/x", nil)
	w.acquire(b, "/l/x") // who is not on the list holds it alone
	w.writes(b, "/d/x", "")
}

func TestNobodyGetsAnotherLockOfThePathDuringAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldIn(t, phoneRules()...)
		a, b := w.open("a"), w.open("b")
		w.acquire(a, "/all/x")
		gate, written, got := make(chan struct{}), make(chan error, 1), make(chan error, 1)
		go func() {
			written <- a.Write(ctx, []lock.Write{{Path: "/d/x/f.tsv"}}, func([]lock.Title) error { <-gate; return nil })
		}()
		synctest.Wait()
		go func() { _, err := b.Acquire(ctx, "/d/x/f_lock"); got <- err }()
		synctest.Wait()
		if len(got) > 0 {
			t.Fatal("granted in the middle of a write")
		}
		close(gate)
		if err := errors.Join(<-written, <-got); err != nil {
			t.Fatal(err)
		}
	})
}

func TestAWriteWaitsForAGrantUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldIn(t, phoneRules()...)
		a, b := w.open("a"), w.open("b")
		w.acquire(a, "/all/x")
		gate := make(chan struct{})
		w.store.Inject(func(c lock.Change) error {
			if c.Name == "/d/x/f_lock" {
				<-gate
			}
			return nil
		})
		got, written := make(chan error, 1), make(chan error, 1)
		go func() { _, err := b.Acquire(ctx, "/d/x/f_lock"); got <- err }()
		synctest.Wait()
		go func() {
			written <- a.Write(ctx, []lock.Write{{Path: "/d/x/f.tsv"}}, func([]lock.Title) error { t.Error("written"); return nil })
		}()
		synctest.Wait()
		if len(written) > 0 {
			t.Error("did not wait:", <-written)
		}
		close(gate)
		if err := <-got; err != nil {
			t.Fatal(err)
		}
		wantText(t, <-written, "protected by the lock /d/x/f_lock, which you do not hold")
		ended, end := contextEnded()
		end()
		if err := a.Write(ended, []lock.Write{{Path: "/free"}}, func([]lock.Title) error { return nil }); err != nil {
			t.Error("nothing to wait for:", err)
		}
	})
}

// blocked holds up every change of the name in the store until the gate is closed.
func (w *world) blocked(n lock.Name) (gate chan struct{}) {
	gate = make(chan struct{})
	w.store.Inject(func(c lock.Change) error {
		if c.Name == n {
			<-gate
		}
		return nil
	})
	return gate
}

func TestAWriteThatWaitedGoesByTheRulesThatAreInForceThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldIn(t, phoneRules()...)
		a, b := w.open("a"), w.open("b")
		w.acquire(a, "/phone_lock")
		gate := w.blocked("/phone_lock")
		released, written := make(chan error, 1), make(chan error, 1)
		go func() { released <- a.Release(ctx, "/phone_lock") }()
		synctest.Wait()
		go func() {
			written <- b.Write(ctx, []lock.Write{{Path: "/phone.tsv"}}, func([]lock.Title) error { return nil })
		}()
		synctest.Wait()
		reloaded := make(chan error, 1)
		go func() { reloaded <- w.SetRules(ctx, rulesOf(t, lock.Rule{Match: "**/*_lock"})) }()
		synctest.Wait()
		close(gate)
		if err := errors.Join(<-released, <-written, <-reloaded); err != nil {
			t.Error(err) // nothing protects it any more
		}
	})
}
