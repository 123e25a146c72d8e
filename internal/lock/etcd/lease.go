package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Run renews the lease and writes the beat. It returns nil when ctx ends, or an error that matches ErrDeposed or ErrHandOver when the
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

// keepLease renews the lease. A renewal whose answer is late or lost reaches etcd all the same. It would keep this server the active
// one while that can change nothing, so it is not repeated before etcd has answered a read.
func (l *Log) keepLease(ctx context.Context) {
	now := func() time.Duration { return l.c.o.Clock.Exact().Boot }
	answered, seen := now(), make(map[string]int64)
	for {
		next := l.c.o.TTL / 4
		if err := l.renew(ctx); err == nil || isAnswer(err) {
			answered, seen = now(), make(map[string]int64)
		} else {
			next = l.c.o.TTL / 20
			for pause(ctx, next) && !l.reach(ctx, now()-answered, seen) {
			}
		}
		if !pause(ctx, next) {
			return
		}
	}
}

// reach reports whether the lease is to be renewed again: etcd has answered a read. If it answered no renewal in time for longer than
// a lease lasts, and answers a server that stands by in time, this server hands over to that one. seen has the revisions of the
// servers' keys when etcd was found to be slow here: what was published before counts for nothing.
func (l *Log) reach(ctx context.Context, silent time.Duration, seen map[string]int64) bool {
	servers, took, err := l.c.ask(ctx, l.c.o.TTL/2)
	if err != nil {
		return false
	}
	if took < l.c.o.RequestTimeout {
		return true
	}
	for _, kv := range servers {
		s, key := decodeServer(kv), string(kv.Key)
		first, ok := seen[key]
		if !ok {
			seen[key] = kv.ModRevision
		}
		if silent > l.c.o.TTL && ok && kv.ModRevision > first && key != l.key && s.RoundTrip > 0 && s.RoundTrip < l.c.o.RequestTimeout {
			l.finish(stepping, fmt.Errorf("%w: etcd answers it in %v, and %s in %v", ErrHandOver, took.Round(time.Millisecond), s, s.RoundTrip))
			return false
		}
	}
	return true
}

// ask reads the servers from all members of etcd at once, and returns the first answer and how long it took.
func (c *Cluster) ask(ctx context.Context, within time.Duration) (servers []*mvccpb.KeyValue, took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), within)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	began := time.Now()
	type answer struct {
		resp *clientv3.GetResponse
		err  error
	}
	answers := make(chan answer, len(c.members.all))
	get := c.getServers()
	for i := range c.members.all {
		asking.Go(func() {
			client, err := c.members.use(i)
			var resp clientv3.OpResponse
			if err == nil {
				resp, err = client.Do(ctx, get)
			}
			answers <- answer{resp.Get(), err}
		})
	}
	for range c.members.all {
		a := <-answers
		if a.err == nil {
			return a.resp.Kvs, time.Since(began), nil
		}
		err = a.err
	}
	return nil, 0, err
}

// renew renews the lease.
func (l *Log) renew(ctx context.Context) error {
	until, err := l.c.keepAlive(ctx, l.lease)
	switch {
	case isLeaseNotFound(err):
		return l.depose("its lease is over")
	case errors.Is(err, rpctypes.ErrAuthFailed): // this server could not learn that another one is active
		return l.depose("etcd refuses its user and password")
	case err == nil:
		l.deadline.Store(int64(until))
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

// beat writes this server's clocks and state for the others. It checks whether this server is still the active one, and is to remain
// that, and whether etcd refuses changes.
func (l *Log) beat(ctx context.Context) {
	why := l.Valid()
	l.mu.Lock()
	if why == nil {
		l.suspended = time.Time{}
	} else if l.suspended.IsZero() {
		l.suspended = l.c.o.Clock.Now().Wall.UTC()
	}
	since := l.suspended
	l.mu.Unlock()
	resp, err := l.c.members.txn(ctx, []clientv3.Cmp{l.mine()},
		[]clientv3.Op{clientv3.OpPut(l.c.keys.beat(), l.beatOf(since, why)), clientv3.OpGet(l.c.keys.stepDown())}, nil)
	switch {
	case errors.Is(err, rpctypes.ErrNoSpace):
		l.refuse(true, "")
		return
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		l.refuse(false, Reason(err))
		return
	case err != nil:
		return
	}
	l.beaten.Store(time.Now().UnixNano())
	l.refuse(false, "")
	switch {
	case !resp.Succeeded:
		_ = l.depose("its election key is gone")
	case string(one(resp, 1).GetValue()) == l.key:
		l.finish(stepping, fmt.Errorf("%w: it was asked to", ErrHandOver))
	}
}

// refuse takes note of whether etcd is full, and why it refuses the beat.
func (l *Log) refuse(full bool, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused = why
	if l.full != full {
		l.full = full
		l.changedLocked()
	}
}
