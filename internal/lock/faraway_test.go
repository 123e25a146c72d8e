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
	seed  uint64
	names []lock.Name
	share bool // every second one is a reader
	mixed bool // they, and the host, also do what the model knows nothing of

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

// acquireSomehow acquires, and waits if that is to be, but not always to the end.
func acquireSomehow(s *lock.Session, n lock.Name, givesUp bool) (lock.Hold, error) {
	called := make(chan struct{}, 1)
	hold, waiting, err := s.AcquireOrWait(ctx, n, func() {
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
			s = c.job("a", fmt.Sprint("job", id/2))
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
		switch r := random.IntN(12); {
		case r < 5 && !(c.share && s.Acquired(n)):
			hold, err := acquireSomehow(s, n, random.IntN(4) == 0)
			if err == nil && hold.Acquired.Wall.Before(began.Round(0)) && !c.mixed {
				c.known(in, hold) // it was granted by an earlier try
				continue
			}
			c.note(id, in, began, hold.Token, err)
		case r < 9 || !c.mixed:
			in.Verb, in.Shared = locktest.RMD, false
			c.note(id, in, began, 0, s.Release(ctx, n))
		case r == 9:
			_, _ = s.Renew(ctx, n)
		case r == 10:
			if err := s.Close(ctx); err != nil && !errors.Is(err, lock.ErrUncertain) && !errors.Is(err, lock.ErrConflict) {
				c.t.Errorf("close: %v", err)
			}
			s = open()
		case random.IntN(2) == 0:
			c.store.Outside(n, lock.CauseHostMade, c.host())
		default:
			c.store.Outside(n, lock.CauseHostGone)
		}
		time.Sleep(time.Duration(random.IntN(50)) * time.Millisecond)
	}
}

// Clients acquire and release over a store that is slow and may lose its answers. What they are told must have an order in which it
// is right, and in the end the table has what the store has.
func TestAStoreThatLosesItsAnswers(t *testing.T) {
	below := func(dir lock.Name, bases ...lock.Name) (names []lock.Name) {
		for _, b := range bases {
			names = append(names, dir+b)
		}
		return names
	}
	lost := 0
	for _, test := range []struct {
		name     string
		c        lock.Contention
		reliable bool
		mixed    bool
		names    []lock.Name
		model    porcupine.Model
		seeds    uint64
	}{
		{"waiting", usual, false, false, below("/locks/", "a", "b", "b/c"), locktest.Model(), 20},
		{"mixed", usual, false, true, below("/locks/", "a", "b", "b/c"), porcupine.Model{}, 20},
		{"together", lock.Contention{ReadersShare: true}, true, false, below("/locks/", "a"), locktest.Model(), 10},
		{"counted", lock.Contention{Limit: 2}, true, false, below("/locks/", "a", "b", "c", "d"), locktest.LimitModel(2), 10},
		{"counted together", lock.Contention{Limit: 2, ReadersShare: true}, true, false, below("/locks/", "a", "b", "c"), locktest.LimitModel(2), 10},
	} {
		for seed := range test.seeds {
			t.Run(fmt.Sprint(test.name, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := &faraway{Memory: locktest.NewMemory(), reliable: test.reliable, random: rand.New(rand.NewPCG(seed, 7))}
					w := &world{t: t, store: f.Memory, over: f, clock: locktest.NewRunningClock(), valid: f.valid}
					c := &crowd{world: w, seed: seed, names: test.names, share: test.c.ReadersShare, mixed: test.mixed}
					c.runs(f, lock.Rule{Match: "/locks/**", Contention: &test.c}, test.model)
					lost += f.lost
				})
			})
		}
	}
	if lost < 50 {
		t.Errorf("%d answers were lost", lost)
	}
}

func (c *crowd) runs(f *faraway, rule lock.Rule, model porcupine.Model) {
	if c.mixed {
		rule.MaxAge, rule.LockDelay, rule.OnDisconnect, rule.Grace = 5*time.Second, time.Second, lock.ReleaseOnDisconnect, time.Second
	}
	c.start(rule)
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
	if c.mixed {
		for len(c.All()) > 0 {
			c.clock.Advance(time.Minute)
			c.Expire(ctx)
		}
	} else if result := porcupine.CheckOperationsTimeout(model, c.told, time.Minute); result != porcupine.Ok {
		c.t.Errorf("%d operations: %s", len(c.told), result)
		for _, op := range c.told {
			c.t.Logf("%d..%d %v %v", op.Call, op.Return, op.Input, op.Output)
		}
	}
	c.empty()
}
