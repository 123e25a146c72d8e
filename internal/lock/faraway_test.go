package lock_test

import (
	"cmp"
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
	case f.chance(85):
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

// told is what clients did, for porcupine.
type told struct {
	mu  sync.Mutex
	all []porcupine.Operation
}

// note adds what a client was told of MKD or RMD.
func (h *told) note(client int, in locktest.Input, began time.Time, token lock.Token, err error) {
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
	case errors.As(err, &queued):
		out = locktest.Output{Result: locktest.Queued}
	default:
		out = locktest.Output{Result: locktest.Refused}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, porcupine.Operation{ClientId: client, Input: in, Output: out, Call: began.UnixNano(), Return: ended})
}

// known notes that an MKD of which nobody knew what became has made the hold.
func (h *told) known(in locktest.Input, hold lock.Hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := len(h.all) - 1; i >= 0; i-- {
		if op := &h.all[i]; op.Input == in && op.Call <= hold.Acquired.Wall.UnixNano() {
			op.Output, op.Return = locktest.Output{Result: locktest.Done, Token: hold.Token}, time.Now().UnixNano()
			return
		}
	}
}

// acquireWaiting acquires, and waits if that is to be.
func acquireWaiting(s *lock.Session, n lock.Name) (lock.Hold, error) {
	called := make(chan struct{}, 1)
	hold, waiting, err := s.AcquireOrWait(ctx, n, func() {
		select {
		case called <- struct{}{}:
		default:
		}
	})
	for over := waiting == nil; !over; {
		<-called
		hold, over, err = waiting.Poll(ctx)
	}
	return hold, err
}

// Clients acquire and release over a store that loses its answers. What they are told must have an order in which it is right, and in
// the end the table has what the store has.
func TestAStoreThatLosesItsAnswers(t *testing.T) {
	lost := 0
	for seed := range uint64(20) {
		for _, mixed := range []bool{false, true} { // also what the model knows nothing of
			t.Run(fmt.Sprint(seed, mixed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { lost += loseAnswers(t, seed, mixed) })
			})
		}
	}
	if lost < 50 {
		t.Errorf("%d answers were lost", lost)
	}
}

var names = []lock.Name{"/locks/a", "/locks/b", "/locks/b/c"}

func loseAnswers(t *testing.T, seed uint64, mixed bool) (lost int) {
	f := &faraway{Memory: locktest.NewMemory(), random: rand.New(rand.NewPCG(seed, 7))}
	w := &world{t: t, store: f.Memory, over: f, clock: locktest.NewRunningClock(), valid: f.valid}
	rule := lock.Rule{Match: "/locks/**", Contention: &usual}
	if mixed {
		rule.MaxAge, rule.LockDelay, rule.OnDisconnect, rule.Grace = 5*time.Second, time.Second, lock.ReleaseOnDisconnect, time.Second
	}
	w.start(rule)
	running, stop := context.WithCancel(ctx)
	var background, clients sync.WaitGroup
	background.Go(func() { _ = w.Run(running) })
	background.Go(func() { f.run(running, w.Table) })
	var h told
	for client := range 5 {
		clients.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(client)+100))
			open := func() *lock.Session {
				s := w.job("a", fmt.Sprint("job", client/2))
				if !mixed {
					s = w.open(fmt.Sprint(client))
				}
				s.SetWait(time.Duration(random.IntN(3)) * time.Second)
				return s
			}
			s := open()
			for range 60 {
				n := names[random.IntN(3)]
				began := time.Now()
				in := locktest.Input{Verb: locktest.MKD, Name: n, Owner: fmt.Sprint(client)}
				switch r := random.IntN(10); {
				case r < 4:
					hold, err := acquireWaiting(s, n)
					if err == nil && hold.Acquired.Wall.Before(began.Round(0)) && !mixed {
						h.known(in, hold) // it was granted by an earlier try
						continue
					}
					h.note(client, in, began, hold.Token, err)
				case r < 8 || !mixed:
					in.Verb = locktest.RMD
					h.note(client, in, began, 0, s.Release(ctx, n))
				case r == 8:
					_, _ = s.Renew(ctx, n)
				default:
					if err := s.Close(ctx); err != nil && !errors.Is(err, lock.ErrUncertain) {
						t.Errorf("close: %v", err)
					}
					s = open()
				}
				time.Sleep(time.Duration(random.IntN(50)) * time.Millisecond)
			}
		})
	}
	clients.Wait()
	for len(f.open("")) > 0 {
		time.Sleep(time.Second)
	}
	time.Sleep(10 * time.Second) // all that is told by Watch has come
	stop()
	background.Wait()
	for _, n := range names {
		status, _ := w.Get(n)
		if stored := w.stored(n); !slices.EqualFunc(stored.Holds, status.Holds, func(a, b lock.Hold) bool { return a.Token == b.Token }) {
			t.Errorf("%s: table %+v, store %+v", n, status.Holds, stored.Holds)
		}
	}
	if !mixed {
		if result := porcupine.CheckOperationsTimeout(locktest.Model(), h.all, time.Minute); result != porcupine.Ok {
			t.Errorf("%s", result)
			began := h.all[0].Call
			for _, op := range h.all {
				began = min(began, op.Call)
			}
			slices.SortFunc(h.all, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
			for _, n := range names {
				one := slices.DeleteFunc(slices.Clone(h.all), func(op porcupine.Operation) bool { return op.Input.(locktest.Input).Name != n })
				if porcupine.CheckOperations(locktest.Model(), one) {
					continue
				}
				for _, op := range one {
					t.Logf("%8.1f %8.1f ms  %v %v", float64(op.Call-began)/1e6, min(float64(op.Return-began)/1e6, 1e6), op.Input, op.Output)
				}
			}
		}
	}
	return f.lost
}
