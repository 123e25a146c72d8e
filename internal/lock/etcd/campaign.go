package etcd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// errNotElected says that the election was lost after all: the server's key is gone, or another one's is older.
var errNotElected = errors.New("the election key is gone")

// Campaign waits until this server is the active one, and returns the store of its term; or until ctx ends, and returns its error; or a
// *ClosedError. Until then it tries for ever, and logs why it does not come to stand by. [Store.Run] must be started right after it: nobody else
// renews the lease.
func (c *Cluster) Campaign(ctx context.Context) (*Store, error) {
	watching, stop := context.WithCancel(ctx)
	var observing sync.WaitGroup
	observing.Go(func() { c.observe(watching) })
	defer observing.Wait()
	defer stop()
	told := ""
	for {
		s, err := c.campaign(ctx)
		var closed *ClosedError
		if err == nil || errors.As(err, &closed) {
			return s, err
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err.Error() != told {
			told = err.Error()
			c.o.Log.Warn("this server cannot stand by, or take over, and tries again", "err", plain(err))
		}
		pause(ctx, c.o.RequestTimeout/2)
	}
}

// campaign stands for election once, with a lease of its own.
func (c *Cluster) campaign(ctx context.Context) (s *Store, err error) {
	lease, err := c.grant(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil { // the library leaves the key where it is (etcd#21128)
			_ = c.revoke(context.WithoutCancel(ctx), lease)
		}
	}()
	value := encode(c.o.Self)
	create, err := c.elect(ctx, lease, value)
	if err != nil {
		return nil, err
	}
	s = &Store{
		c: c, lease: lease, key: fmt.Sprintf("%s%x", c.keys.servers(), lease), create: create, value: value,
		over: make(chan struct{}), pending: make(map[*write]struct{}),
	}
	if err := s.renew(ctx); err != nil {
		return nil, err
	}
	if err := s.takeOver(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// grant asks for a lease. Without a deadline the library would wait for ever if nobody answers.
func (c *Cluster) grant(ctx context.Context) (clientv3.LeaseID, error) {
	var lease clientv3.LeaseID
	err := c.members.do(ctx, func(ctx context.Context, client *clientv3.Client) error {
		resp, err := client.Grant(ctx, int64((c.o.TTL+time.Second-1)/time.Second))
		if err == nil {
			lease = resp.ID
		}
		return err
	})
	return lease, err
}

func (c *Cluster) revoke(ctx context.Context, lease clientv3.LeaseID) error {
	return c.members.do(ctx, func(ctx context.Context, client *clientv3.Client) error {
		_, err := client.Revoke(ctx, lease)
		if isLeaseNotFound(err) {
			return nil
		}
		return err
	})
}

// elect waits until there is no older election key, and returns the CreateRevision of this server's. What it says is to be verified: the
// library returns nil also when the key is gone (etcd#19597).
//
// It has a client of its own, which ends with the campaign: the library goes on asking etcd after its context has ended.
func (c *Cluster) elect(ctx context.Context, lease clientv3.LeaseID, value string) (create int64, err error) {
	campaigning, cancel := context.WithCancel(ctx)
	defer cancel()
	i := c.members.pick()
	client, err := c.members.dial(campaigning, c.members.all[i].endpoint)
	if err != nil {
		c.members.leave(i)
		return 0, err
	}
	defer client.Close()
	session, err := concurrency.NewSession(client, concurrency.WithLease(lease))
	if err != nil {
		c.members.leave(i)
		return 0, err
	}
	defer session.Orphan()
	defer context.AfterFunc(session.Ctx(), cancel)() // the lease is not renewed any more
	election := concurrency.NewElection(session, c.keys.election())
	if err = election.Campaign(campaigning, value); err != nil {
		c.members.leave(i)
	}
	if err != nil && ctx.Err() == nil && session.Ctx().Err() != nil {
		err = errors.New("its lease was not renewed in time")
	}
	return election.Rev(), err
}

// takeOver makes sure that the server is the active one, moves the fence to where nobody knows it, and counts the epoch, all in one
// transaction. From then on nothing that any other server has sent can be made any more. What it reads there is what the term begins with.
func (s *Store) takeOver(ctx context.Context) error {
	for {
		before, err := s.c.members.get(ctx, s.c.keys.epoch())
		if err != nil {
			return err
		}
		var epoch *mvccpb.KeyValue
		if len(before.Kvs) > 0 {
			epoch = before.Kvs[0]
		}
		next := number(epoch) + 1
		verified := []clientv3.Cmp{
			clientv3.Compare(clientv3.CreateRevision(s.key), "=", s.create),
			clientv3.Compare(clientv3.CreateRevision(s.c.keys.servers()), ">", s.create-1).WithPrefix(), // nobody's key is older
			clientv3.Compare(clientv3.CreateRevision(s.c.keys.closed()), "=", 0),
		}
		resp, err := s.c.members.txn(ctx, append(verified, clientv3.Compare(clientv3.ModRevision(s.c.keys.epoch()), "=", epoch.GetModRevision())),
			[]clientv3.Op{
				clientv3.OpPut(s.key, s.value, clientv3.WithLease(s.lease)),
				clientv3.OpPut(s.c.keys.epoch(), strconv.FormatUint(next, 10)),
				clientv3.OpGet(s.c.keys.base()),
				clientv3.OpGet(s.c.keys.beat()),
				s.c.getLine(clientv3.SortAscend), s.c.getLine(clientv3.SortDescend),
			},
			[]clientv3.Op{clientv3.OpGet(s.key), clientv3.OpGet(s.c.keys.epoch()), clientv3.OpGet(s.c.keys.closed())})
		switch {
		case err != nil:
			return err
		case resp.Succeeded:
			s.epoch, s.base, s.fence = uint32(next), lock.Token(number(one(resp, 2))), resp.Header.Revision
			s.first, s.next = s.c.offsetOf(one(resp, 4)), s.c.endOf(one(resp, 5))
			s.c.mu.Lock()
			s.c.boots.see(one(resp, 3), s.c.o.Clock.Now())
			s.c.mu.Unlock()
			return nil
		case one(resp, 2) != nil:
			return s.c.closedError(one(resp, 2))
		case one(resp, 0).GetCreateRevision() != s.create || one(resp, 1).GetModRevision() == epoch.GetModRevision():
			return errNotElected
		}
	}
}
