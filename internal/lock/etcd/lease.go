package etcd

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// settleEvery is how often etcd is asked what became of changes that are not settled.
const settleEvery = 200 * time.Millisecond

// Run renews the lease, writes the beat, and goes on settling changes of which etcd has not told. It returns nil when ctx ends, or an error
// that matches ErrDeposed or ErrStepDown when the term does. While sessions are drained it must go on, up to Resign.
//
// A lost quorum does not end the term: the server is suspended, and goes on if the election key has outlived it.
func (s *Store) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() { s.keepLease(ctx) })
	running.Go(func() { s.keepBeat(ctx) })
	running.Go(func() { s.keepSettling(ctx) })
	running.Go(func() { s.listen(ctx) })
	select {
	case <-ctx.Done():
		return nil
	case <-s.over:
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.why
	}
}

// Valid returns nil while this server is surely the active one, and may change locks; else a *lock.SuspendedError, or one that matches it. It asks
// nobody: it compares the time since boot, which goes on while a machine sleeps, with the end of the lease.
func (s *Store) Valid() error {
	if err := s.check(); err != nil {
		return err
	}
	if s.c.o.Clock.Now().Boot >= time.Duration(s.deadline.Load()) {
		return &lock.SuspendedError{Reason: "etcd has not confirmed in time that this server is the active one"}
	}
	return nil
}

func (s *Store) keepLease(ctx context.Context) {
	for {
		next := s.c.o.TTL / 4
		if err := s.renew(ctx); err != nil {
			next = s.c.o.TTL / 20
		}
		if !pause(ctx, next) {
			return
		}
	}
}

// renew renews the lease. It lasts from when etcd received the request, so it is counted from before that was sent.
func (s *Store) renew(ctx context.Context) error {
	err := s.c.members.do(ctx, func(ctx context.Context, client *clientv3.Client) error {
		sent := s.c.o.Clock.Now().Boot
		resp, err := client.KeepAliveOnce(ctx, s.lease)
		if err == nil {
			s.deadline.Store(int64(sent + time.Duration(resp.TTL)*time.Second - s.c.o.Margin))
		}
		if isLeaseNotFound(err) { // a renewal does not tell of which cluster the member is
			if _, other := client.TimeToLive(ctx, s.lease); errors.Is(other, errOtherCluster) {
				return other
			}
		}
		return err
	})
	switch {
	case isLeaseNotFound(err):
		return s.depose("its lease is over")
	case errors.Is(err, rpctypes.ErrAuthFailed): // it would never know that another server is active
		return s.depose("etcd refuses its user and password")
	}
	return err
}

func isLeaseNotFound(err error) bool { return errors.Is(err, rpctypes.ErrLeaseNotFound) }

func (s *Store) keepBeat(ctx context.Context) {
	for {
		s.beat(ctx)
		if !pause(ctx, beatEvery) {
			return
		}
	}
}

// beat tells the other servers this one's clocks, and sees whether it is still the active one and is to remain that.
func (s *Store) beat(ctx context.Context) {
	resp, err := s.c.members.txn(ctx, []clientv3.Cmp{s.mine()},
		[]clientv3.Op{clientv3.OpPut(s.c.keys.beat(), s.c.beat()), clientv3.OpGet(s.c.keys.stepDown())}, nil)
	s.setFull(errors.Is(err, rpctypes.ErrNoSpace))
	switch {
	case err != nil:
	case !resp.Succeeded:
		_ = s.depose("its election key is gone")
	case string(one(resp, 1).GetValue()) == s.key:
		s.end(stepping, ErrStepDown)
	}
}

func (s *Store) setFull(full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full = full
}

// mine is true while this server is the active one.
func (s *Store) mine() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(s.key), "=", s.create)
}

// listen waits to be asked to hand over. What it misses is seen by the next beat.
func (s *Store) listen(ctx context.Context) {
	for {
		if client, err := s.c.members.use(s.c.members.pick()); err == nil {
			for resp := range client.Watch(clientv3.WithRequireLeader(ctx), s.c.keys.stepDown()) {
				for _, event := range resp.Events {
					if string(event.Kv.Value) == s.key {
						s.end(stepping, ErrStepDown)
					}
				}
			}
		}
		if !pause(ctx, beatEvery) {
			return
		}
	}
}

func (s *Store) keepSettling(ctx context.Context) {
	for {
		for _, w := range s.unsettledOf("") {
			s.resolve(ctx, w)
		}
		if !pause(ctx, settleEvery) {
			return
		}
	}
}

// fenced is true while this server is the active one, and the fence has not moved.
func (s *Store) fenced(fence int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(s.key), "=", fence)
}

func (s *Store) fenceNow() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fence
}

// moved takes note of where the fence is, and reports whether that is news.
func (s *Store) moved(to int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	news := to > s.fence
	s.fence = max(s.fence, to)
	return news
}

func parseOffset(text string) int64 {
	n, _ := strconv.ParseInt(text, 16, 64)
	return n
}
