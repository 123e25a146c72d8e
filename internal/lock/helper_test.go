package lock_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var ctx = context.Background()

// world is a table, what is below it, and the time it lives in.
type world struct {
	*lock.Table
	t          *testing.T
	store      *locktest.Memory
	over       lock.Store // around it; nil: nothing is
	clock      *locktest.FakeClock
	log        *text
	observe    func(lock.Observation) // nil: nobody looks
	valid      func() error           // nil: locks may be changed
	generation uint32

	mu   sync.Mutex
	ends []lock.Observation // of holds that were taken away
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
	w.log = &text{}
	store := lock.Store(w.store)
	if w.over != nil {
		store = w.over
	}
	table, err := lock.NewTable(ctx, lock.Options{
		Store: store, Clock: w.clock, Rules: rulesOf(w.t, rules...), Log: slog.New(slog.NewTextHandler(w.log, nil)),
		Observe: w.note, Generation: w.generation,
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

// note keeps the ends of holds that were not given back.
func (w *world) note(o lock.Observation) {
	if w.observe != nil {
		w.observe(o)
	}
	if o.Ended && o.Cause != lock.CauseRelease && o.Cause != lock.CauseUndo && o.Cause != lock.CauseUndeliver {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.ends = append(w.ends, o)
	}
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

// reload puts other rules in force.
func (w *world) reload(rules ...lock.Rule) {
	w.t.Helper()
	w.ok(w.SetRules(ctx, rulesOf(w.t, rules...)))
}

func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// open begins a session of the account.
func (w *world) open(account string) *lock.Session { return w.job(account, "") }

// openAt begins a session of the account from an address.
func (w *world) openAt(account, address string) *lock.Session {
	return w.Open(lock.Owner{Account: account, Address: address})
}

// job begins a session of the account with a nonce.
func (w *world) job(account, nonce string) *lock.Session {
	return w.Open(lock.Owner{Account: account, Address: "192.0.2.1", Nonce: nonce})
}

// holder begins a session of the account that takes the locks.
func (w *world) holder(account string, names ...lock.Name) *lock.Session {
	w.t.Helper()
	s := w.open(account)
	for _, n := range names {
		w.acquire(s, n)
	}
	return s
}

// acquire has the session take the lock, which must succeed.
func (w *world) acquire(s *lock.Session, n lock.Name) lock.Hold {
	w.t.Helper()
	hold, err := s.Acquire(ctx, n)
	if err != nil {
		w.t.Fatalf("acquire %s: %v", n, err)
	}
	return hold
}

// refused has the session try to take the lock, which must fail with an error that matches want.
func (w *world) refused(s *lock.Session, n lock.Name, want error) error {
	w.t.Helper()
	hold, err := s.Acquire(ctx, n)
	if !errors.Is(err, want) {
		w.t.Fatalf("acquire %s: got %v (token %d), want %v", n, err, hold.Token, want)
	}
	return err
}

// release has the session give the lock back. want nil: it must succeed.
func (w *world) release(s *lock.Session, n lock.Name, want error) error {
	w.t.Helper()
	err := s.Release(ctx, n)
	if !errors.Is(err, want) || want == nil && err != nil {
		w.t.Fatalf("release %s: got %v, want %v", n, err, want)
	}
	return err
}

// breaks breaks the first hold that stands of the name.
func (w *world) breaks(n lock.Name, by lock.Owner, why string) error {
	status, ok := w.Get(n)
	if !ok {
		return lock.ErrNotHeld
	}
	return w.Break(ctx, n, status.Holds[0].Token, by, why)
}

// end closes the session.
func (w *world) end(s *lock.Session) {
	w.t.Helper()
	w.ok(s.Close(ctx))
}

// Expire is that of the table. It returns how many holds were taken away meanwhile.
func (w *world) Expire(ctx context.Context) int {
	before := len(w.ended())
	w.Table.Expire(ctx)
	return len(w.ended()) - before
}

func (w *world) ended() []lock.Observation {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.ends)
}

// expires runs Expire, which must end just these names, members before the locks that they lie in. It returns why.
func (w *world) expires(want ...lock.Name) (causes []lock.Cause) {
	w.t.Helper()
	before := len(w.ended())
	w.Expire(ctx)
	var got []lock.Name
	for _, o := range w.ended()[before:] {
		got, causes = append(got, o.Name), append(causes, o.Cause)
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

// pass lets time pass, and then Expire must end just these names.
func (w *world) pass(d time.Duration, want ...lock.Name) (causes []lock.Cause) {
	w.t.Helper()
	w.clock.Advance(d)
	return w.expires(want...)
}

// looksIn checks in what time Expire has something to look at next.
func (w *world) looksIn(want time.Duration) {
	w.t.Helper()
	if in, ok := w.NextExpiry(); !ok || in != want {
		w.t.Fatalf("the next look is in %v, %v, want %v", in, ok, want)
	}
}

// hurries checks that what do does makes something due sooner, and that the caller of Expire is told.
func (w *world) hurries(do func()) {
	w.t.Helper()
	w.NextExpiry()
	for len(w.Changed()) > 0 {
		<-w.Changed()
	}
	do()
	if len(w.Changed()) == 0 {
		w.t.Error("nobody is told that there is something to end")
	}
}

// holds checks who holds the lock: "" is nobody. The store must agree.
func (w *world) holds(n lock.Name, account string) {
	w.t.Helper()
	if account == "" {
		w.heldBy(n)
	} else {
		w.heldBy(n, account)
	}
}

// heldBy checks who holds the lock, the oldest first. The store must agree.
func (w *world) heldBy(n lock.Name, accounts ...string) {
	w.t.Helper()
	w.agree(n)
	var got []string
	status, _ := w.Get(n)
	for _, h := range status.Holds {
		got = append(got, h.Owner.Account)
	}
	if !slices.Equal(got, accounts) {
		w.t.Fatalf("%s is held by %q, want %q", n, got, accounts)
	}
}

// agree checks that the table has what the store has.
func (w *world) agree(n lock.Name) {
	w.t.Helper()
	status, _ := w.Get(n)
	same := func(a, b lock.Hold) bool { return a.Token == b.Token && a.Owner == b.Owner }
	if stored := w.stored(n); !slices.EqualFunc(stored.Holds, status.Holds, same) {
		w.t.Fatalf("%s: the table has %+v, the store %+v", n, status.Holds, stored.Holds)
	}
}

func (w *world) stored(n lock.Name) lock.Record {
	w.t.Helper()
	record, err := w.store.Get(ctx, n)
	w.ok(err)
	return record
}

// wanted checks how many are in the queue for a lock that is held.
func (w *world) wanted(n lock.Name, want int) {
	w.t.Helper()
	if status, _ := w.Get(n); status.Waiting != want {
		w.t.Errorf("%d in the queue for %s, want %d", status.Waiting, n, want)
	}
}

// empty checks that nothing is left in memory, once everything is over.
func (w *world) empty() {
	w.t.Helper()
	w.clock.Advance(2 * time.Minute)
	w.Expire(ctx)
	if n := lock.Nodes(w.Table); n != 1+len(w.All()) && len(w.All()) == 0 {
		w.t.Errorf("%d names are remembered", n)
	}
	if n := lock.Polls(w.Table); n > 0 {
		w.t.Errorf("%d tries are remembered", n)
	}
}

// host is a hold of a program on the host that began just now.
func (w *world) host() lock.Hold {
	return lock.Hold{Owner: lock.Owner{Account: lock.HostAccount}, Acquired: w.clock.Now()}
}

// blocked holds up every change of the name in the store, if it has one of the causes, until the gate is closed.
func (w *world) blocked(n lock.Name, causes ...lock.Cause) (gate chan struct{}) {
	gate = make(chan struct{})
	w.store.Inject(func(c lock.Change) error {
		if c.Name == n && (causes == nil || slices.Contains(causes, c.Cause)) {
			<-gate
		}
		return nil
	})
	return gate
}

// starts runs f beside a test in a bubble until it is over, then its error is in the channel, or waits for something.
func starts(f func() error) (over chan error) {
	over = make(chan error, 1)
	go func() { over <- f() }()
	synctest.Wait()
	return over
}

// acquireOf is the session's try to take the lock.
func acquireOf(s *lock.Session, n lock.Name) func() error {
	return func() error {
		_, err := s.Acquire(ctx, n)
		return err
	}
}

// nothing is what a change does that is only asked whether it may be.
func nothing() error { return nil }

// publish changes a file in a lock by the session's hold with the token.
func publish(s *lock.Session, n lock.Name, token lock.Token, fn func() error) error {
	in := lock.Write{Path: n + "/file", Begun: true, Title: lock.Title{Around: n, Grant: token}}
	return s.Write(ctx, []lock.Write{in}, func([]lock.Title) error { return fn() })
}

func wantText(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || err.Error() != want {
		t.Errorf("error %q, want %q", err, want)
	}
}

// text is what was logged.
type text struct {
	mu sync.Mutex
	b  strings.Builder
}

func (x *text) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.Write(p)
}

// count returns how often the words stand in it.
func (x *text) count(words string) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return strings.Count(x.b.String(), words)
}
