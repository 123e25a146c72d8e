package etcd

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Run renews the lease and writes the beat. It returns nil when ctx ends, or an error that matches ErrDeposed or ErrStepDown when the
// term does. While sessions are drained it must go on, up to Resign.
//
// A lost quorum does not end the term: the server is suspended, and goes on if the election key has outlived it.
func (l *Log) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() { l.keepLease(ctx) })
	running.Go(func() { l.keepBeat(ctx) })
	select {
	case <-ctx.Done():
		return nil
	case <-l.over:
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.why
	}
}

func (l *Log) keepLease(ctx context.Context) {
	for {
		next := l.c.o.TTL / 4
		if err := l.renew(ctx); err != nil {
			next = l.c.o.TTL / 20
		}
		if !pause(ctx, next) {
			return
		}
	}
}

// renew renews the lease. It lasts from when etcd received the request, so it is counted from before that was sent.
func (l *Log) renew(ctx context.Context) error {
	err := l.c.members.do(ctx, func(ctx context.Context, client *clientv3.Client) error {
		sent := l.c.o.Clock.Exact().Boot
		resp, err := client.KeepAliveOnce(ctx, l.lease)
		if err == nil {
			l.deadline.Store(int64(sent + time.Duration(resp.TTL)*time.Second - l.c.o.Margin))
		}
		if isLeaseNotFound(err) { // a renewal does not tell of which cluster the member is
			if _, other := client.TimeToLive(ctx, l.lease); errors.Is(other, errOtherCluster) {
				return other
			}
		}
		return err
	})
	switch {
	case isLeaseNotFound(err):
		return l.depose("its lease is over")
	case errors.Is(err, rpctypes.ErrAuthFailed): // it would never know that another server is active
		return l.depose("etcd refuses its user and password")
	}
	return err
}

func isLeaseNotFound(err error) bool { return errors.Is(err, rpctypes.ErrLeaseNotFound) }

func (l *Log) keepBeat(ctx context.Context) {
	for {
		l.beat(ctx)
		if !pause(ctx, beatEvery) {
			return
		}
	}
}

// beat writes this server's clocks for the others, and checks whether it is still the active one, and is to remain that.
func (l *Log) beat(ctx context.Context) {
	resp, err := l.c.members.txn(ctx, []clientv3.Cmp{l.mine()},
		[]clientv3.Op{clientv3.OpPut(l.c.keys.beat(), l.c.beat()), clientv3.OpGet(l.c.keys.stepDown())}, nil)
	switch {
	case errors.Is(err, rpctypes.ErrNoSpace):
		l.setFull(true)
		return
	case err != nil:
		return
	}
	l.setFull(false)
	switch {
	case !resp.Succeeded:
		_ = l.depose("its election key is gone")
	case string(one(resp, 1).GetValue()) == l.key:
		l.finish(stepping, ErrStepDown)
	}
}

func (l *Log) setFull(full bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.full != full {
		l.full = full
		l.changedLocked()
	}
}
