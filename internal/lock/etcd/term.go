package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// Run renews the lease. It returns nil when ctx ends, or an error that matches ErrDeposed or ErrHandOver when the server must
// end its sessions. Let it run until Resign.
//
// A lost quorum does not end the term. The server is suspended, and continues if its election key is still there.
func (l *Log) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	var renewing sync.WaitGroup
	defer renewing.Wait()
	defer stop()
	renewing.Go(func() { l.keepLease(ctx) })
	select {
	case <-ctx.Done():
		return nil
	case err := <-l.runError:
		return err
	}
}

// keepLease renews the lease until ctx ends. etcd receives a renewal even if its answer is late or lost, and then this server would stay the
// active one although it can change nothing. So after a failure keepLease waits until etcd answers a read.
func (l *Log) keepLease(ctx context.Context) {
	now := func() time.Duration { return l.c.o.Clock.Exact().Boot }
	for answered := now(); ctx.Err() == nil; {
		if err := l.renew(ctx); err == nil || isAnswer(err) {
			answered = now()
			pause(ctx, l.c.o.TTL/4)
			continue
		}
		for !l.canReadEtcd(ctx, now()-answered) && pause(ctx, l.c.o.TTL/20) {
		}
	}
}

// renew renews the lease once.
func (l *Log) renew(ctx context.Context) error {
	until, err := l.c.keepAlive(ctx, l.lease)
	switch {
	case isLeaseNotFound(err):
		l.depose("its lease is over")
	case errors.Is(err, rpctypes.ErrAuthFailed): // another server may be active, and this one cannot read that
		l.depose("etcd refuses its user and password")
	case err == nil:
		l.deadline.Store(int64(until))
	}
	return err
}

// canReadEtcd reports whether etcd answers a read, so that the lease is renewed again. If etcd has answered no renewal in time for two ttl, and answers
// this read late, too, this server hands over to a server that stands by. None does if etcd is slow for all: see [candidacy.poll].
func (l *Log) canReadEtcd(ctx context.Context, silent time.Duration) bool {
	var resp clientv3.OpResponse
	began := time.Now()
	err := l.c.members.sendToOneWithin(ctx, l.c.o.TTL, func(ctx context.Context, client *clientv3.Client) (err error) {
		resp, err = client.Do(ctx, l.c.getServers())
		return err
	})
	if err != nil {
		return false
	}
	took := time.Since(began)
	if took < l.c.o.RequestTimeout || silent < 2*l.c.o.TTL || len(resp.Get().Kvs) < 2 {
		return true
	}
	l.endRun(fmt.Errorf("%w: etcd took %v for an answer, and request_timeout is %v", ErrHandOver, took.Round(time.Millisecond), l.c.o.RequestTimeout))
	return false
}

// endRun has Run return an error. Only the first one counts.
func (l *Log) endRun(err error) {
	select {
	case l.runError <- err:
	default:
	}
}

// errDeposed is the error of a change after another server may have taken over.
var errDeposed = fmt.Errorf("%w: %w", &lock.SuspendedError{Reason: "another server takes over"}, ErrDeposed)

// depose ends the term because the election key or its lease is gone.
func (l *Log) depose(why string) {
	l.end(errDeposed)
	l.endRun(fmt.Errorf("%w: %s", ErrDeposed, why))
}

// setTrouble sets why nothing can be changed now; nil: etcd has applied a change.
func (l *Log) setTrouble(trouble error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trouble = trouble
}

// check returns why nothing can be changed now, whatever the lease.
func (l *Log) check() error {
	if l.term.Err() != nil {
		return context.Cause(l.term)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.trouble
}

// Valid returns nil while this server is surely the active one and may change locks. Otherwise the error matches *lock.SuspendedError, or is
// lock.ErrClosed. Valid makes no request: it compares the time since boot, which includes suspend, with the end of the lease.
func (l *Log) Valid() error {
	if err := l.check(); err != nil {
		return err
	}
	if l.c.o.Clock.Exact().Boot >= time.Duration(l.deadline.Load()) {
		return &lock.SuspendedError{Reason: "etcd has not confirmed in time that this server is the active one"}
	}
	return nil
}

// LeaseOver reports whether etcd may have ended the lease: then another server may be active. The lease lasts longer if etcd received a renewal whose
// answer was lost. Until then [Log.Valid] has returned an error for Options.Margin at least.
func (l *Log) LeaseOver() bool {
	return l.c.o.Clock.Exact().Boot >= time.Duration(l.deadline.Load())+l.c.o.Margin
}

// LeaseLeft returns the time until this server counts its lease as over; 0: it is over.
func (l *Log) LeaseLeft() time.Duration {
	return max(0, time.Duration(l.deadline.Load())-l.c.o.Clock.Exact().Boot)
}

// Ready writes a beat, unless the last one is fresh, and returns why no lock can be granted.
func (l *Log) Ready() error {
	ctx, cancel := context.WithTimeout(l.term, l.c.o.RequestTimeout)
	defer cancel()
	_ = l.flush(ctx) // Valid returns the error
	return l.Valid()
}

// Resign writes everything, unless that takes too long, and hands over: it revokes the lease, and with it the election key goes. Without it the
// next server waits for the end of the lease.
func (l *Log) Resign(ctx context.Context) error {
	writing, cancel := context.WithTimeout(ctx, 2*l.c.o.RequestTimeout)
	defer cancel()
	err := l.flush(writing)
	if errors.Is(l.check(), ErrDeposed) {
		err = nil
	} else if err != nil {
		err = fmt.Errorf("etcd: writing the history: %w", err)
	}
	l.Close()
	if rerr := l.c.revoke(ctx, l.lease); rerr != nil {
		err = errors.Join(err, fmt.Errorf("etcd: handing over: %w", withoutGRPC(rerr)))
	}
	return err
}

// Close ends the term without handing over. Records that no caller waited for may be lost.
func (l *Log) Close() error {
	l.end(lock.ErrClosed)
	l.writing.Wait()
	return nil
}
