package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

// world is a table, what is below it, and the time it lives in.
type world struct {
	*lock.Table
	t          *testing.T
	store      *locktest.Memory
	over       lock.Store // around it; nil: nothing is
	clock      *locktest.FakeClock
	log        *record
	observe    func(lock.Observation) // nil: nobody looks
	valid      func() error           // nil: locks may be changed
	generation uint32
}

// newWorld makes a table over an empty store with the rules.
func newWorld(t *testing.T, rules ...lock.Rule) *world {
	t.Helper()
	w := &world{t: t, store: locktest.NewMemory(), clock: locktest.NewFakeClock()}
	w.start(rules...)
	return w
}

// newWorldIn is newWorld for a test in a bubble of testing/synctest, with its time.
func newWorldIn(t *testing.T, rules ...lock.Rule) *world {
	t.Helper()
	w := &world{t: t, store: locktest.NewMemory(), clock: locktest.NewRunningClock()}
	w.start(rules...)
	return w
}

// start makes a new table over what the store has, as a start of the server does.
func (w *world) start(rules ...lock.Rule) {
	w.t.Helper()
	w.generation++
	w.log = &record{}
	store := lock.Store(w.store)
	if w.over != nil {
		store = w.over
	}
	table, err := lock.NewTable(context.Background(), lock.Options{
		Store: store, Clock: w.clock, Rules: rulesOf(w.t, rules...),
		Log: slog.New(w.log), Observe: func(o lock.Observation) {
			w.log.observe(o)
			if w.observe != nil {
				w.observe(o)
			}
		}, Generation: w.generation,
		Valid: func() error {
			if w.valid == nil {
				return nil
			}
			return w.valid()
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.Table = table
}

// anyone lets everybody take locks below others'.
var anyone = lock.Contention{Members: lock.MembersAnyone}

func rulesOf(t *testing.T, rules ...lock.Rule) *lock.Rules {
	t.Helper()
	if rules == nil {
		rules = []lock.Rule{
			{Match: "/locks/**", MaxAge: 10 * time.Minute, Contention: &anyone},
			{Match: "**/*_lock", MaxAge: 6 * time.Minute},
		}
	}
	r, err := lock.NewRules(rules)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// open begins a session of the account.
func (w *world) open(account string) *lock.Session {
	return w.Open(lock.Owner{Account: account, Address: "192.0.2.1"})
}

// openAt begins a session of the account from an address.
func (w *world) openAt(account, address string) *lock.Session {
	return w.Open(lock.Owner{Account: account, Address: address})
}

// job begins a session of the account with a nonce.
func (w *world) job(account, nonce string) *lock.Session {
	w.t.Helper()
	s := w.open(account)
	if err := s.SetNonce(nonce); err != nil {
		w.t.Fatal(err)
	}
	return s
}

// acquire has the session take the lock, which must succeed.
func (w *world) acquire(s *lock.Session, n lock.Name) lock.Hold {
	w.t.Helper()
	hold, err := s.Acquire(context.Background(), n)
	if err != nil {
		w.t.Fatalf("acquire %s: %v", n, err)
	}
	return hold
}

// refused has the session try to take the lock, which must fail with an error that matches want.
func (w *world) refused(s *lock.Session, n lock.Name, want error) error {
	w.t.Helper()
	hold, err := s.Acquire(context.Background(), n)
	if !errors.Is(err, want) {
		w.t.Fatalf("acquire %s: got %v (token %d), want %v", n, err, hold.Token, want)
	}
	return err
}

// release has the session give the lock back. want nil: it must succeed.
func (w *world) release(s *lock.Session, n lock.Name, want error) error {
	w.t.Helper()
	err := s.Release(context.Background(), n)
	if !errors.Is(err, want) || want == nil && err != nil {
		w.t.Fatalf("release %s: got %v, want %v", n, err, want)
	}
	return err
}

// end closes the session.
func (w *world) end(s *lock.Session) {
	w.t.Helper()
	if err := s.Close(context.Background()); err != nil {
		w.t.Fatal(err)
	}
}

// Expire is that of the table. It returns how many holds were taken away meanwhile.
func (w *world) Expire(ctx context.Context) int {
	before := w.log.count("lock ended")
	w.Table.Expire(ctx)
	return w.log.count("lock ended") - before
}

// expires runs Expire, which must end just these names, members before the locks that they lie in. It returns why.
func (w *world) expires(want ...lock.Name) (causes []string) {
	w.t.Helper()
	before := w.log.count("")
	w.Expire(ctx)
	var got []lock.Name
	for _, line := range w.log.lines[before:] {
		var name, cause string
		if n, _ := fmt.Sscanf(line, "lock ended lock=%s cause=%s", &name, &cause); n == 2 {
			got, causes = append(got, lock.Name(name)), append(causes, cause)
		}
	}
	for i, n := range got {
		if slices.ContainsFunc(got[i+1:], func(later lock.Name) bool { return later.Within(n) }) {
			w.t.Fatalf("expired %q, a lock before its members", got)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		w.t.Fatalf("expired %q, want %q", got, want)
	}
	return causes
}

// holds checks who holds the lock: "" is nobody. The store must agree.
func (w *world) holds(n lock.Name, account string) {
	w.t.Helper()
	status, ok := w.Get(n)
	got := ""
	if ok {
		got = status.Holds[0].Owner.Account
	}
	if got != account {
		w.t.Fatalf("%s is held by %q, want %q", n, got, account)
	}
	stored := ""
	if r := w.stored(n); len(r.Holds) > 0 {
		stored = r.Holds[0].Owner.Account
	}
	if stored != account {
		w.t.Fatalf("the store has %s held by %q, want %q", n, stored, account)
	}
}

func (w *world) stored(n lock.Name) lock.Record {
	w.t.Helper()
	for record, err := range w.store.All(context.Background()) {
		if err != nil {
			w.t.Fatal(err)
		}
		if record.Name == n {
			return record
		}
	}
	return lock.Record{}
}

func wantText(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || err.Error() != want {
		t.Errorf("error %q, want %q", err, want)
	}
}

// record is a log handler that keeps what it is told.
type record struct {
	mu    sync.Mutex
	lines []string
}

func (r *record) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }
func (r *record) WithAttrs([]slog.Attr) slog.Handler           { return r }
func (r *record) WithGroup(string) slog.Handler                { return r }
func (r *record) Handle(_ context.Context, rec slog.Record) error {
	var b strings.Builder
	b.WriteString(rec.Message)
	rec.Attrs(func(a slog.Attr) bool {
		b.WriteString(" " + a.String())
		return true
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, b.String())
	return nil
}

// observe keeps the ends of holds that were not given back.
func (r *record) observe(o lock.Observation) {
	if !o.Ended || o.Cause == lock.CauseRelease || o.Cause == lock.CauseUndo || o.Cause == lock.CauseUndeliver {
		return
	}
	line := fmt.Sprintf("lock ended lock=%s cause=%s holder=%s age=%v token=%d", o.Name, o.Cause, o.Hold.Owner, o.Held, o.Hold.Token)
	if o.By != (lock.Owner{}) {
		line += " by=" + o.By.String()
	}
	if o.Note != "" {
		line += " note=" + o.Note
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, line)
}

// count returns how many lines contain the text.
func (r *record) count(text string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, line := range r.lines {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// publish changes a file in a lock by the session's hold with the token.
func publish(s *lock.Session, n lock.Name, token lock.Token, fn func() error) error {
	in := lock.Write{Path: n + "/file", Begun: true, Title: lock.Title{Around: n, Grant: token}}
	return s.Write(ctx, []lock.Write{in}, func([]lock.Title) error { return fn() })
}

// breaks breaks the first hold that stands of the name.
func (w *world) breaks(n lock.Name, by lock.Owner, why string) error {
	status, ok := w.Get(n)
	if !ok {
		return lock.ErrNotHeld
	}
	return w.Break(ctx, n, status.Holds[0].Token, by, why)
}
