//go:build linux

package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// The transaction of a grant is delivered when the lock was granted, and released, by later ones. Only the fence keeps it from being
// applied: nothing else differs from when it was sent.
func TestALateTransactionIsNotApplied(t *testing.T) {
	s := newScene(t, 1)
	o := s.options()
	o.Endpoints = append(o.Endpoints, o.Endpoints[0])
	c := s.open(o)
	active := s.campaign(c)
	active.halt() // so that the transaction that is held back is the grant
	var once sync.Once
	late := make(chan func() error, 1)
	s.intercept(c, 0, func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		held := false
		if method == txnMethod {
			once.Do(func() { held = true })
		}
		if !held {
			return invoke(ctx, method, request, reply, conn, opts...)
		}
		late <- func() error { return invoke(context.WithoutCancel(ctx), method, request, reply, conn, opts...) }
		return status.Error(codes.DeadlineExceeded, "held back")
	})
	c.members.prefer(0)
	s.release(active, s.acquire(active, "/a_lock"))
	if err := (<-late)(); err != nil {
		t.Fatal(err)
	}
	s.held(c)
}

// While no member answers the server is suspended, and Wait waits until its context ends. The record is written later.
func TestAnUnknownOutcomeSuspends(t *testing.T) {
	for _, applied := range []bool{true, false} {
		t.Run(fmt.Sprint("applied=", applied), func(t *testing.T) {
			s := newScene(t, 1)
			relay := s.etcd.Relays()[0]
			o := s.options()
			o.Endpoints, o.RequestTimeout = []string{relay.Endpoint()}, 200*time.Millisecond
			c := s.open(o)
			active := s.campaign(c)
			if err := active.Valid(); err != nil {
				t.Fatal(err)
			}
			if applied {
				relay.HoldReplies()
			} else {
				relay.Cut()
			}
			ctx, cancel := context.WithCancel(t.Context())
			end := active.Append([]lock.Record{active.grant("/a_lock")})
			s.until("it is suspended before its lease is over", func() bool { return isSuspended(active.check()) })
			cancel()
			if err := active.Wait(ctx, end, true); !errors.Is(err, lock.ErrUncertain) || !errors.Is(err, context.Canceled) {
				t.Errorf("Wait: %v", err)
			}
			later := active.Append([]lock.Record{active.grant("/b_lock")})
			relay.Heal()
			if err := active.Wait(t.Context(), later, true); err != nil {
				t.Error(err)
			}
			s.until("it goes on", func() bool { return active.Valid() == nil })
			s.held(c, "/a_lock", "/b_lock")
			if err := active.flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := s.causes(c); !slices.Equal(got, []lock.Cause{lock.CauseAcquire, lock.CauseAcquire}) {
				t.Errorf("the history is %v", got)
			}
		})
	}
}

// The record was written, its reply was lost, and then another server could take over: nothing is reported as failed or done.
func TestADeposedLogFailsEveryWait(t *testing.T) {
	s := newScene(t, 1)
	c := s.open(s.options())
	side := s.open(s.options())
	active := s.campaign(c)
	active.halt()
	s.intercept(c, 0, after(func(func() error) error {
		s.remove(side, active.key)
		return status.Error(codes.DeadlineExceeded, "the reply is lost")
	}))
	if err := s.commit(active, active.grant("/a_lock")); !errors.Is(err, lock.ErrUncertain) {
		t.Errorf("Wait: %v", err)
	}
	if err := s.commit(active, active.grant("/b_lock")); !errors.Is(err, lock.ErrUncertain) {
		t.Errorf("Wait of a later record: %v", err)
	}
	if err := s.over(s.run(active.Log)); !errors.Is(err, ErrDeposed) {
		t.Errorf("Run: %v", err)
	}
	if err := active.Valid(); !isSuspended(err) || !errors.Is(err, ErrDeposed) {
		t.Errorf("Valid: %v", err)
	}
	if err := active.MakeRoom(t.Context(), active.token+2*tokenBlock); !errors.Is(err, ErrDeposed) {
		t.Errorf("MakeRoom: %v", err)
	}
	if err := active.Resign(t.Context()); err != nil {
		t.Error(err)
	}
	s.held(c, "/a_lock")
}

// after calls f when a transaction has been applied, for its error; the first time only.
func after(f func(again func() error) error) grpc.UnaryClientInterceptor {
	done := false
	return func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		err := invoke(ctx, method, request, reply, conn, opts...)
		if done || err != nil || method != txnMethod {
			return err
		}
		done = true
		return f(func() error { return invoke(ctx, method, request, reply, conn, opts...) })
	}
}

// etcd may answer that it has no space, or answer twice, after it has applied the transaction.
func TestARepeatedTransactionChangesNothing(t *testing.T) {
	for name, f := range map[string]func(again func() error) error{
		"no space":   func(func() error) error { return rpctypes.ErrGRPCNoSpace },
		"sent twice": func(again func() error) error { return again() },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, 1)
			c := s.open(s.options())
			active := s.campaign(c)
			active.halt()
			first := s.acquire(active, "/a_lock")
			s.intercept(c, 0, after(f))
			again := active.grant("/a_lock")
			end := active.Append([]lock.Record{active.endOf(first), again})
			for err := error(lock.ErrUncertain); err != nil; {
				if err = active.Wait(t.Context(), end, true); err != nil && !errors.Is(err, lock.ErrFull) {
					t.Fatal(err)
				}
			}
			if got := s.holds(c)["/a_lock"]; got.Token != again.Hold.Token {
				t.Errorf("got %+v, want token %d", got, again.Hold.Token)
			}
			s.release(active, again.Hold)
			s.held(c)
		})
	}
}

// Several callers share a transaction, none of which is larger than etcd takes.
func TestManyRecordsShareTransactions(t *testing.T) {
	s := newScene(t, 1)
	c := s.open(s.options())
	active := s.campaign(c)
	active.halt()
	var txns, away atomic.Int64
	away.Store(1)
	s.intercept(c, 0, func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if method == txnMethod {
			for away.Load() > 0 {
				time.Sleep(time.Millisecond)
			}
			txns.Add(1)
		}
		return invoke(ctx, method, request, reply, conn, opts...)
	})
	active.Append([]lock.Record{active.grant("/0_lock")})
	s.until("it is under way", func() bool { active.mu.Lock(); defer active.mu.Unlock(); return active.queue[0].taken })
	var ends []lock.Record
	for i := range 500 {
		r := active.grant(lock.Name(fmt.Sprintf("/%d_lock", i+1)))
		active.Append([]lock.Record{r})
		ends = append(ends, active.endOf(r.Hold))
	}
	end := active.Append(append(ends[:250:250], ends[251:]...))
	away.Store(0)
	if err := active.Wait(t.Context(), end, true); err != nil {
		t.Fatal(err)
	}
	if n := txns.Load(); n > 20 {
		t.Errorf("%d transactions", n)
	}
	s.held(c, "/0_lock", "/251_lock")
}

// A publication is in etcd when Wait returns, with the entries before it.
func TestAPublicationIsWrittenBeforeWaitReturns(t *testing.T) {
	s := newScene(t, 1)
	c := s.open(s.options())
	active := s.campaign(c)
	h := s.acquire(active, "/a_lock")
	file := &lock.Publication{Path: "/a.tsv", Bytes: 7, SHA256: "00ff"}
	if err := s.commit(active, lock.Record{Kind: lock.Published, Cause: lock.CausePublish, Hold: h, By: h.Owner, At: s.clock.Now(), File: file}); err != nil {
		t.Fatal(err)
	}
	if got := s.causes(c); !slices.Equal(got, []lock.Cause{lock.CauseAcquire, lock.CausePublish}) {
		t.Errorf("the history is %v", got)
	}
}

// A member that hangs is asked once, and then no more.
func TestAServerLeavesAMemberThatHangs(t *testing.T) {
	s := newScene(t, 3)
	o := s.options()
	o.RequestTimeout = 3 * time.Second // the other members answer in time
	c := s.open(o)
	active := s.campaign(c)
	hangs := (s.etcd.LeaderIndex() + 1) % 3
	c.members.prefer(hangs)
	s.etcd.Stop(hangs)
	for i := range 20 {
		h := s.acquire(active, "/a_lock")
		if c.members.pick() == hangs {
			t.Fatalf("change %d: the member that hangs is asked again", i)
		}
		s.release(active, h)
	}
}
