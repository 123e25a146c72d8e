package lock_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

// faraway is a store over a network: slow, and it may lose its answers. A change whose answer is lost was made, or is made
// later, or never. While nobody knows, nothing else is changed. What came of it is told by Watch, late.
type faraway struct {
	*locktest.Memory

	reliable bool // it loses none

	mu        sync.Mutex
	random    *rand.Rand
	unsettled []*pending
	lost      int // answers
}

// pending is a change of which nobody knows whether it was made.
type pending struct {
	change   lock.Change
	underWay bool // it may still be made
}

func (f *faraway) chance(percent int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.random.IntN(100) < percent
}

func (f *faraway) sleep(most time.Duration) {
	f.mu.Lock()
	d := time.Duration(f.random.Int64N(int64(most)))
	f.mu.Unlock()
	time.Sleep(d)
}

func (f *faraway) valid() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.unsettled) > 0 {
		return &lock.SuspendedError{Reason: "a change is not settled"}
	}
	return nil
}

func (f *faraway) Commit(ctx context.Context, c lock.Change) (lock.Token, error) {
	if err := f.valid(); err != nil {
		return 0, err
	}
	f.sleep(20 * time.Millisecond)
	switch {
	case f.reliable || f.chance(85):
		token, err := f.Memory.Commit(context.WithoutCancel(ctx), c)
		f.sleep(20 * time.Millisecond)
		return token, err
	case f.chance(20):
		return 0, &lock.SuspendedError{Reason: "no leader"}
	}
	p := &pending{change: c, underWay: true}
	if f.chance(40) {
		if _, err := f.Memory.Commit(context.WithoutCancel(ctx), c); errors.Is(err, lock.ErrConflict) {
			return 0, err
		}
		p.underWay = false
	}
	f.mu.Lock()
	f.unsettled = append(f.unsettled, p)
	f.lost++
	f.mu.Unlock()
	f.sleep(200 * time.Millisecond)
	return 0, fmt.Errorf("%s: %w", c.Name, lock.ErrUncertain)
}

// settle finds out what became of a change.
func (f *faraway) settle(p *pending) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.Index(f.unsettled, p)
	if i < 0 {
		return
	}
	cause := p.change.Cause
	if p.underWay {
		made := f.random.IntN(2) > 0
		if made {
			_, err := f.Memory.Commit(context.Background(), p.change)
			made = err == nil
		}
		if !made {
			cause = lock.CauseUndeliver
		}
	}
	f.unsettled = slices.Delete(f.unsettled, i, i+1)
	f.Tell(p.change.Name, cause)
}

func (f *faraway) open(n lock.Name) (all []*pending) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.unsettled {
		if n == "" || p.change.Name == n {
			all = append(all, p)
		}
	}
	return all
}

func (f *faraway) Get(ctx context.Context, n lock.Name) (lock.Record, error) {
	f.sleep(20 * time.Millisecond)
	for _, p := range f.open(n) {
		if f.chance(50) {
			return lock.Record{}, lock.ErrUncertain
		}
		f.settle(p)
	}
	return f.Memory.Get(ctx, n)
}

func (f *faraway) Watch(ctx context.Context) iter.Seq[lock.Event] {
	events := f.Memory.Watch(ctx)
	return func(yield func(lock.Event) bool) {
		for event := range events {
			f.sleep(100 * time.Millisecond)
			if !yield(event) {
				return
			}
		}
	}
}

// run settles, and has the table expire, until ctx ends.
func (f *faraway) run(ctx context.Context, t *lock.Table) {
	for ctx.Err() == nil {
		time.Sleep(100 * time.Millisecond)
		for _, p := range f.open("") {
			if f.chance(30) {
				f.settle(p)
			}
		}
		t.Expire(ctx)
	}
}

// crowd is clients that take locks, wait for them, give up and give them back at random.
type crowd struct {
	*world
	seed   uint64
	names  []lock.Name
	rules  []lock.Rule
	others []lock.Rule // that come and go with these
	share  bool        // every second client is a reader
	mixed  bool        // they also do what the model knows nothing of
	host   bool        // so does the host

	told []porcupine.Operation // guarded by mu
}

// note adds what a client was told of MKD or RMD.
func (c *crowd) note(client int, in locktest.Input, began time.Time, token lock.Token, err error) {
	out := locktest.Output{Result: locktest.Done, Token: token}
	ended := time.Now().UnixNano()
	var queued *lock.QueuedError
	var suspended *lock.SuspendedError
	switch {
	case err == nil:
	case errors.Is(err, lock.ErrUncertain):
		out, ended = locktest.Output{Result: locktest.Unknown}, math.MaxInt64
	case errors.As(err, &suspended), errors.Is(err, lock.ErrMembers), errors.Is(err, lock.ErrNoParent): // it says nothing of who holds it
		return
	case errors.As(err, &queued), errors.As(err, new(*lock.DeadlockError)), errors.Is(err, errGaveUp): // nor do these
		out = locktest.Output{Result: locktest.Queued}
	default:
		out = locktest.Output{Result: locktest.Refused}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = append(c.told, porcupine.Operation{ClientId: client, Input: in, Output: out, Call: began.UnixNano(), Return: ended})
}

// known notes that an MKD of which nobody knew what became has made the hold.
func (c *crowd) known(in locktest.Input, hold lock.Hold) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.told) - 1; i >= 0; i-- {
		if op := &c.told[i]; op.Input == in && op.Call <= hold.Acquired.Wall.UnixNano() {
			op.Output, op.Return = locktest.Output{Result: locktest.Done, Token: hold.Token}, time.Now().UnixNano()
			return
		}
	}
}

var errGaveUp = errors.New("gave up")

// somehow does what may have to wait, but does not always wait to the end.
func somehow(givesUp bool, begin func(wake func()) (lock.Hold, *lock.Waiting, error)) (lock.Hold, error) {
	called := make(chan struct{}, 1)
	hold, waiting, err := begin(func() {
		select {
		case called <- struct{}{}:
		default:
		}
	})
	for over := waiting == nil; !over; {
		if givesUp {
			if hold, over, err = waiting.Poll(ctx); !over {
				waiting.Withdraw()
				return lock.Hold{}, errGaveUp
			}
			break
		}
		<-called
		hold, over, err = waiting.Poll(ctx)
	}
	return hold, err
}

// client is what one of them does.
func (c *crowd) client(id int) {
	random := rand.New(rand.NewPCG(c.seed, uint64(id)+100))
	reads := c.share && id%2 == 0
	open := func() *lock.Session {
		s := c.open(fmt.Sprint(id))
		if c.mixed {
			s = c.job(fmt.Sprint("a", id%2), []string{"", "job"}[random.IntN(2)])
		}
		s.SetReader(reads)
		s.SetWait(time.Duration(random.IntN(3)) * time.Second)
		return s
	}
	s := open()
	for range 60 {
		n := c.names[random.IntN(len(c.names))]
		began := time.Now()
		in := locktest.Input{Verb: locktest.MKD, Name: n, Owner: fmt.Sprint(id), Shared: reads}
		acquire := func(wake func()) (lock.Hold, *lock.Waiting, error) { return s.AcquireOrWait(ctx, n, wake) }
		switch r := random.IntN(9); {
		case c.mixed:
			if err := c.mixes(s, n, random, acquire); !expected(err) {
				c.t.Errorf("%s: %v", n, err)
			}
			if id == 0 && random.IntN(5) == 0 { // one at a time: in a bubble no time goes by while the second waits
				if err := c.SetRules(ctx, rulesOf(c.t, [][]lock.Rule{c.rules, c.others}[random.IntN(2)]...)); !expected(err) {
					c.t.Errorf("reload: %v", err)
				}
			}
			if random.IntN(20) == 0 {
				if err := s.Close(ctx); !expected(err) {
					c.t.Errorf("close: %v", err)
				}
				s = open()
			}
		case r < 5 && !(c.share && s.Acquired(n)):
			hold, err := somehow(random.IntN(4) == 0, acquire)
			if err == nil && hold.Acquired.Wall.Before(began.Round(0)) {
				c.known(in, hold) // it was granted by an earlier try
				continue
			}
			c.note(id, in, began, hold.Token, err)
		default:
			in.Verb, in.Shared = locktest.RMD, false
			c.note(id, in, began, 0, s.Release(ctx, n))
		}
		time.Sleep(time.Duration(random.IntN(50)) * time.Millisecond)
	}
	if err := s.Close(ctx); !expected(err) {
		c.t.Errorf("close: %v", err)
	}
}

// mixes does one thing of many.
func (c *crowd) mixes(s *lock.Session, n lock.Name, random *rand.Rand, acquire func(func()) (lock.Hold, *lock.Waiting, error)) (err error) {
	givesUp := random.IntN(4) == 0
	switch random.IntN(13) {
	case 0, 1, 2, 3, 4:
		_, err = somehow(givesUp, acquire)
	case 5, 6, 7, 8:
		_, err = somehow(givesUp, func(wake func()) (lock.Hold, *lock.Waiting, error) {
			_, waiting, err := s.ReleaseOrWait(ctx, n, wake)
			return lock.Hold{}, waiting, err
		})
	case 9:
		_, err = s.Renew(ctx, n)
	case 10:
		err = c.breaks(n, lock.Owner{}, "")
	case 11:
		if hold, speaks := s.SpeaksFor(n); speaks == nil {
			err = publish(s, n, hold.Token, nothing)
		}
	case 12:
		switch {
		case !c.host:
		case random.IntN(2) == 0:
			c.store.Outside(n, lock.CauseHostMade, c.world.host())
		default:
			c.store.Outside(n, lock.CauseHostGone)
		}
	}
	return err
}

// expected reports whether an error is one that clients of a crowd are told.
func expected(err error) bool {
	for _, e := range []error{
		lock.ErrHeld, lock.ErrNotHeld, lock.ErrNotYours, lock.ErrMembers, lock.ErrStale, lock.ErrNoParent, lock.ErrConflict, lock.ErrUncertain, errGaveUp,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return err == nil || errors.As(err, new(*lock.ProtectedError)) || errors.As(err, new(*lock.SuspendedError))
}

// looks checks after each change in the store what the package promises: who holds a name alone is alone, no limit is exceeded, tokens
// grow, no lock ends before its members.
func (c *crowd) looks(limit int) {
	newest := make(map[lock.Name]lock.Token)
	c.store.InjectAfter(func(change lock.Change) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		slots := 0
		for record := range c.store.All(ctx) { // of one moment
			for _, h := range record.Holds {
				if len(record.Holds) > 1 && !h.Shared {
					c.t.Errorf("%s: %+v", record.Name, record.Holds)
				}
			}
			if record.Name.Parent() == "/slots" {
				slots++
			}
			if n := record.Name; len(change.Holds) == 0 && n != change.Name && n.Within(change.Name) {
				c.t.Errorf("%s ended before its member %s", change.Name, n)
			}
			if record.Revision < newest[record.Name] {
				c.t.Errorf("%s: %+v after token %d", record.Name, record, newest[record.Name])
			}
			newest[record.Name] = record.Revision
		}
		if slots > limit {
			c.t.Errorf("%d locks below /slots", slots)
		}
		return nil
	})
}

// Clients use a store that is slow and may lose its answers. What they are told must have an order in which it is right. In the end the
// table has what the store has, and nothing is left.
func TestAStoreThatLosesItsAnswers(t *testing.T) {
	below := func(dir lock.Name, bases ...lock.Name) (names []lock.Name) {
		for _, b := range bases {
			names = append(names, dir+b)
		}
		return names
	}
	rule := func(c lock.Contention) []lock.Rule { return []lock.Rule{{Match: "/locks/**", Contention: &c}} }
	short := rule(usual)
	short[0].MaxAge, short[0].LockDelay, short[0].OnDisconnect, short[0].Grace = 5*time.Second, time.Second, lock.ReleaseOnDisconnect, time.Second
	all := func(queue lock.QueuePolicy) []lock.Rule {
		c := lock.Contention{Queue: queue, QueueHold: time.Second, ReadersShare: true}
		counted := c
		counted.Limit = 2
		return []lock.Rule{
			{Match: "/slots/*", MaxAge: 5 * time.Second, LockDelay: time.Second, Contention: &counted},
			{Match: "/again/**", OnDisconnect: lock.ReleaseOnDisconnect, Contention: &lock.Contention{Reentrant: true, Queue: lock.QueueFair, QueueHold: time.Second}},
			{Match: "/locks/**", MaxAge: 5 * time.Second, MaxIdle: 2 * time.Second, Contention: &c},
		}
	}
	nested := below("/locks/", "a", "b", "b/c")
	lost := 0
	for _, test := range []struct {
		name     string
		reliable bool
		crowd    crowd
		model    porcupine.Model
		seeds    uint64
	}{
		{"waiting", false, crowd{rules: rule(usual), names: nested}, locktest.Model(), 20},
		{"host", false, crowd{rules: short, others: short, names: nested, mixed: true, host: true}, porcupine.Model{}, 20},
		{"mixed", false, crowd{rules: all(lock.QueueFair), others: all(lock.QueueOff), mixed: true, share: true,
			names: append(below("/slots/", "1", "2", "3", "4"), "/locks/a", "/locks/a/b", "/again/x")}, porcupine.Model{}, 40},
		{"together", true, crowd{rules: rule(lock.Contention{ReadersShare: true}), names: nested[:1], share: true}, locktest.Model(), 10},
		{"counted", true, crowd{rules: rule(lock.Contention{Limit: 2}), names: below("/locks/", "a", "b", "c", "d")}, locktest.LimitModel(2), 10},
		{"counted together", true, crowd{rules: rule(lock.Contention{Limit: 2, ReadersShare: true}), names: below("/locks/", "a", "b", "c"), share: true},
			locktest.LimitModel(2), 10},
	} {
		for seed := range test.seeds {
			t.Run(fmt.Sprint(test.name, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := &faraway{Memory: locktest.NewMemory(), reliable: test.reliable, random: rand.New(rand.NewPCG(seed, 7))}
					c := test.crowd
					c.world = &world{t: t, store: f.Memory, over: f, clock: locktest.NewRunningClock(), valid: f.valid}
					c.seed = seed
					c.runs(f, test.model)
					lost += f.lost
				})
			})
		}
	}
	if lost < 50 {
		t.Errorf("%d answers were lost", lost)
	}
}

func (c *crowd) runs(f *faraway, model porcupine.Model) {
	c.start(c.rules...)
	if c.mixed && !c.host {
		c.looks(2)
	}
	running, stop := context.WithCancel(ctx)
	var background, clients sync.WaitGroup
	background.Go(func() { _ = c.Run(running) })
	background.Go(func() { f.run(running, c.Table) })
	for id := range 5 {
		clients.Go(func() { c.client(id) })
	}
	clients.Wait()
	for len(f.open("")) > 0 {
		time.Sleep(time.Second)
	}
	time.Sleep(10 * time.Second) // all that is told by Watch has come
	stop()
	background.Wait()
	for _, n := range c.names {
		c.agree(n)
	}
	if !c.mixed {
		if result := porcupine.CheckOperationsTimeout(model, c.told, time.Minute); result != porcupine.Ok {
			c.t.Errorf("%d operations: %s", len(c.told), result)
			for _, op := range c.told {
				c.t.Logf("%d..%d %v %v", op.Call, op.Return, op.Input, op.Output)
			}
		}
		return
	}
	f.reliable = true
	for range 100 {
		c.clock.Advance(time.Minute)
		c.Expire(ctx)
	}
	if c.empty(); len(c.All()) > 0 || lock.Accounts(c.Table) != 0 {
		c.t.Errorf("left over: %+v, %d accounts", c.All(), lock.Accounts(c.Table))
	}
}
