//go:build linux

package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// The transaction of a grant arrives after a repetition of it has granted the lock, and another one has released it. Only the fence prevents
// that etcd applies it.
func TestALateTransactionIsNotApplied(t *testing.T) {
	s := newScene(t, 1)
	o := s.options()
	o.Endpoints = append(o.Endpoints, o.Endpoints[0])
	c := s.open(o)
	active := s.campaign(c)
	var once sync.Once
	late := make(chan func() error, 1)
	s.intercept(c, 0, func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		held := false
		if changesHold(request) {
			once.Do(func() { held = true })
		}
		if !held {
			return invoke(ctx, method, request, reply, conn, opts...)
		}
		late <- func() error { return invoke(context.WithoutCancel(ctx), method, request, reply, conn, opts...) }
		return status.Error(codes.DeadlineExceeded, "held back")
	})
	c.members.current.Store(0)
	s.release(active, s.acquire(active, "/a_lock"))
	if err := (<-late)(); err != nil {
		t.Fatal(err)
	}
	s.held(c)
}

// While no member answers, the server is suspended, and Wait waits until its context ends. The writer writes the record later.
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
			s.until("it continues", func() bool { return active.Valid() == nil })
			s.held(c, "/a_lock", "/b_lock")
			if err := active.flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := s.history(c); !slices.Equal(got, []string{"acquire /a_lock", "acquire /b_lock"}) {
				t.Errorf("the history is %v", got)
			}
		})
	}
}

// The record is written and its reply is lost. Then another server may take over, so Wait reports an unknown outcome. It must not match
// SuspendedError: that reply is that nothing was changed.
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
	if err := s.commit(active, active.grant("/a_lock")); !errors.Is(err, lock.ErrUncertain) || isSuspended(err) {
		t.Errorf("Wait: %v", err)
	}
	if err := s.commit(active, active.grant("/b_lock")); !errors.Is(err, lock.ErrUncertain) || isSuspended(err) {
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

// changesHold reports whether a request is a transaction that puts or deletes a hold.
func changesHold(request any) bool {
	txn, ok := request.(*pb.TxnRequest)
	return ok && slices.ContainsFunc(txn.Success, func(op *pb.RequestOp) bool {
		return bytes.Contains(op.GetRequestPut().GetKey(), []byte("/lock/")) || bytes.Contains(op.GetRequestDeleteRange().GetKey(), []byte("/lock/"))
	})
}

// after calls f when the first change of a hold has been applied, and returns its error in place of the reply.
func after(f func(again func() error) error) grpc.UnaryClientInterceptor {
	done := false
	return func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		err := invoke(ctx, method, request, reply, conn, opts...)
		if done || err != nil || !changesHold(request) {
			return err
		}
		done = true
		return f(func() error { return invoke(ctx, method, request, reply, conn, opts...) })
	}
}

// etcd may apply a transaction and return an error, or apply it twice.
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
			if got := s.held(c, "/a_lock"); got[0].Token != again.Hold.Token {
				t.Errorf("token %d, want %d", got[0].Token, again.Hold.Token)
			}
			s.release(active, again.Hold)
			s.held(c)
		})
	}
}

// Several callers share a transaction. None is larger than etcd allows.
func TestManyRecordsShareTransactions(t *testing.T) {
	s := newScene(t, 1)
	c := s.open(s.options())
	active := s.campaign(c)
	active.halt()
	var txns, away atomic.Int64
	away.Store(1)
	s.intercept(c, 0, func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if changesHold(request) {
			for away.Load() > 0 {
				time.Sleep(time.Millisecond)
			}
			txns.Add(1)
		}
		return invoke(ctx, method, request, reply, conn, opts...)
	})
	active.Append([]lock.Record{active.grant("/0_lock")})
	s.until("the first batch is under way", func() bool {
		active.mu.Lock()
		defer active.mu.Unlock()
		return len(active.queue) > 0 && active.queue[0].inFlight && len(active.queue[0].ops) > 0
	})
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

// When Wait returns, etcd has the publication and the entries before it.
func TestAPublicationIsWrittenBeforeWaitReturns(t *testing.T) {
	s := newScene(t, 1)
	c := s.open(s.options())
	active := s.campaign(c)
	h := s.acquire(active, "/a_lock")
	file := &lock.Publication{Path: "/a.tsv", Bytes: 7, SHA256: "00ff"}
	if err := s.commit(active, lock.Record{Kind: lock.Published, Cause: lock.CausePublish, Hold: h, By: h.Owner, At: s.clock.Now(), File: file}); err != nil {
		t.Fatal(err)
	}
	if got := s.history(c); !slices.Equal(got, []string{"acquire /a_lock", "publish /a_lock"}) {
		t.Errorf("the history is %v", got)
	}
}

// A hanging member gets one request.
func TestAServerLeavesAMemberThatHangs(t *testing.T) {
	s := newScene(t, 3)
	o := s.options()
	o.RequestTimeout = 3 * time.Second // the other members answer in time
	c := s.open(o)
	active := s.campaign(c)
	hangs := (s.etcd.LeaderIndex() + 1) % 3
	c.members.current.Store(int32(hangs))
	s.etcd.Stop(hangs)
	for i := range 20 {
		h := s.acquire(active, "/a_lock")
		if int(c.members.current.Load()) == hangs {
			t.Fatalf("change %d: the hanging member gets another request", i)
		}
		s.release(active, h)
	}
}
