package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

// fakeEtcd has the leases and election keys of an etcd that is never slow itself.
type fakeEtcd struct {
	mu     sync.Mutex
	leases []*lease // the id of a lease is its index plus one
}

type lease struct {
	key   *mvccpb.KeyValue // nil: none
	until time.Time
}

// serversLocked returns the election keys, the oldest first.
func (e *fakeEtcd) serversLocked() (all []*mvccpb.KeyValue) {
	for _, l := range e.leases {
		if l.key != nil && time.Now().Before(l.until) {
			all = append(all, l.key)
		}
	}
	return all
}

// way is the way of one server to etcd. A request that the test does not need panics.
type way struct {
	clientv3.KV
	clientv3.Lease
	etcd *fakeEtcd
	trip func() time.Duration // returns the round trip of a request
}

const wayTTL = 5 * time.Second

// open returns a server with this way to etcd.
func (w *way) open(t *testing.T) *Cluster {
	c := Open(Options{Endpoints: []string{"127.0.0.1:1"}, Prefix: "/p/", TTL: wayTTL, RequestTimeout: time.Second, Clock: locktest.NewRunningClock()})
	client := clientv3.NewCtxClient(context.Background())
	client.KV, client.Lease = w, w
	c.members.all[0].client = client
	c.members.cluster.Store(1)
	t.Cleanup(func() { c.Close() })
	return c
}

// send has etcd execute a request at once, and delivers the answer after the round trip.
func send[T any](ctx context.Context, w *way, request func() T) (T, error) {
	w.etcd.mu.Lock()
	answer := request()
	w.etcd.mu.Unlock()
	if !pause(ctx, w.trip()) {
		return *new(T), ctx.Err()
	}
	return answer, nil
}

func (w *way) Close() error { return nil }

func (w *way) Grant(ctx context.Context, _ int64) (*clientv3.LeaseGrantResponse, error) {
	return send(ctx, w, func() *clientv3.LeaseGrantResponse {
		w.etcd.leases = append(w.etcd.leases, &lease{until: time.Now().Add(wayTTL)})
		return &clientv3.LeaseGrantResponse{ID: clientv3.LeaseID(len(w.etcd.leases))}
	})
}

// Put puts an election key. The key of the last lease is the one that has none.
func (w *way) Put(ctx context.Context, key, _ string, _ ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	return send(ctx, w, func() *clientv3.PutResponse {
		w.etcd.leases[len(w.etcd.leases)-1].key = &mvccpb.KeyValue{Key: []byte(key)}
		return nil
	})
}

func (w *way) KeepAliveOnce(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseKeepAliveResponse, error) {
	resp, err := send(ctx, w, func() *clientv3.LeaseKeepAliveResponse {
		l := w.etcd.leases[id-1]
		if !time.Now().Before(l.until) {
			return nil
		}
		l.until = time.Now().Add(wayTTL)
		return &clientv3.LeaseKeepAliveResponse{ID: id, TTL: int64(wayTTL / time.Second)}
	})
	if err == nil && resp == nil {
		err = rpctypes.ErrLeaseNotFound
	}
	return resp, err
}

func (w *way) Do(ctx context.Context, _ clientv3.Op) (clientv3.OpResponse, error) {
	resp, err := send(ctx, w, func() *clientv3.GetResponse { return &clientv3.GetResponse{Kvs: w.etcd.serversLocked()} })
	return resp.OpResponse(), err
}

func (w *way) Txn(ctx context.Context) clientv3.Txn { return txn{w, ctx} }

// txn is a transaction that reads the election keys first. Its condition is not true.
type txn struct {
	*way
	ctx context.Context
}

func (t txn) If(...clientv3.Cmp) clientv3.Txn  { return t }
func (t txn) Then(...clientv3.Op) clientv3.Txn { return t }
func (t txn) Else(...clientv3.Op) clientv3.Txn { return t }

func (t txn) Commit() (*clientv3.TxnResponse, error) {
	return send(t.ctx, t.way, func() *clientv3.TxnResponse {
		servers := &pb.ResponseOp_ResponseRange{ResponseRange: &pb.RangeResponse{Kvs: t.etcd.serversLocked()}}
		return &clientv3.TxnResponse{Header: &pb.ResponseHeader{}, Responses: []*pb.ResponseOp{{Response: servers}}}
	})
}

// The active server hands over only if its own way to etcd is slow. The key of another server proves that: the other server loses it if etcd is slow
// for all.
func TestAServerWithASlowWayToEtcdLosesItsTerm(t *testing.T) {
	const slow, enough, lost, forever = 1100 * time.Millisecond, 900 * time.Millisecond, time.Hour, time.Hour
	for name, c := range map[string]struct {
		active, standby time.Duration // round trips after both servers have election keys
		last            time.Duration // how long they last
		how             string        // how the term ends; "": it does not
	}{
		"its way is slow":             {slow, enough, forever, "it hands over"},
		"its way is fast enough":      {enough, 0, forever, ""},
		"its way was slow for a time": {slow, 0, 2 * wayTTL, ""},
		"answers are lost":            {lost, 0, forever, "its lease ends"},
		"etcd is slow for all":        {slow, slow, forever, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var began time.Time
				etcd := new(fakeEtcd)
				open := func(trip time.Duration) *candidacy {
					s := &candidacy{c: (&way{etcd: etcd, trip: func() time.Duration {
						if began.IsZero() || time.Since(began) >= c.last {
							return 0
						}
						return trip
					}}).open(t)}
					if _, err := s.poll(t.Context()); err != nil {
						t.Fatal(err)
					}
					return s
				}
				active, standby := open(c.active), open(c.standby)
				began = time.Now()
				ctx, stop := context.WithTimeout(t.Context(), time.Minute)
				var polling sync.WaitGroup
				defer polling.Wait()
				defer stop()
				polling.Go(func() {
					for pause(ctx, pollEvery) {
						_, _ = standby.poll(ctx)
					}
				})
				l := newLog(active.c, active.lease, 0)
				defer l.Close()
				err, how := l.Run(ctx), ""
				etcd.mu.Lock()
				defer etcd.mu.Unlock()
				switch took := time.Since(began); {
				case errors.Is(err, ErrHandOver) && took >= 2*wayTTL:
					how = "it hands over"
				case time.Now().After(etcd.leases[0].until):
					how = "its lease ends"
				case err != nil:
					how = fmt.Sprintf("%v, after %v", err, took)
				}
				if how != c.how {
					t.Errorf("%q, want %q", how, c.how)
				}
			})
		})
	}
}
