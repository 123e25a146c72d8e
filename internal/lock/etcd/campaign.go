package etcd

import (
	"context"
	"errors"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// errNotElected says that the election was lost after all: the server's key is gone, or another one's is older.
var errNotElected = errors.New("the election key is gone")

// errNotMeasured is returned before the first look at etcd.
var errNotMeasured = errors.New("etcd has not answered yet")

// Campaign waits until this server is the active one, and returns the log of its term; or until ctx ends, and returns its error. Until
// then it tries again and again, and logs why it cannot stand by. Start [Log.Run] right after it: Run renews the lease.
func (c *Cluster) Campaign(ctx context.Context) (*Log, error) {
	watching, stop := context.WithCancel(ctx)
	var observing sync.WaitGroup
	observing.Go(func() { c.observe(watching) })
	defer observing.Wait()
	defer stop()
	told := ""
	for {
		err := c.slow()
		if err == nil {
			var l *Log
			if l, err = c.campaign(ctx); err == nil {
				return l, nil
			}
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err.Error() != told && !errors.Is(err, errNotMeasured) {
			told = err.Error()
			c.o.Log.Warn("this server cannot stand by, or take over, and tries again", "err", plain(err))
		}
		if errors.Is(err, errNotMeasured) {
			pause(ctx, time.Millisecond)
		} else {
			pause(ctx, c.o.RequestTimeout/2)
		}
	}
}

// campaign stands for election once, with a lease of its own.
func (c *Cluster) campaign(ctx context.Context) (l *Log, err error) {
	lease, err := c.grant(ctx)
	if err != nil {
		return nil, err
	}
	c.stands(lease)
	defer c.stands(0)
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
	l = newLog(c, lease, create, value)
	if err := l.renew(ctx); err != nil {
		return nil, err
	}
	if err := l.takeOver(ctx); err != nil {
		return nil, err
	}
	l.writing.Go(l.write)
	return l, nil
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

// takeOver verifies that the server is the active one, moves the fence, counts the epoch and reserves tokens, all in one
// transaction. Nothing that another server sent before is applied after it. The term begins with what it reads.
func (l *Log) takeOver(ctx context.Context) error {
	k := l.c.keys
	for {
		before, err := l.c.members.txn(ctx, nil, []clientv3.Op{clientv3.OpGet(k.epoch()), clientv3.OpGet(k.tokens())}, nil)
		if err != nil {
			return err
		}
		epoch, tokens := one(before, 0), one(before, 1)
		next, last := number64(epoch)+1, max(number64(tokens), uint64(l.c.o.After))
		resp, err := l.c.members.txn(ctx,
			[]clientv3.Cmp{
				l.mine(),
				clientv3.Compare(clientv3.CreateRevision(k.servers()), ">", l.create-1).WithPrefix(), // no key is older
				clientv3.Compare(clientv3.ModRevision(k.epoch()), "=", epoch.GetModRevision()),
				clientv3.Compare(clientv3.ModRevision(k.tokens()), "=", tokens.GetModRevision()),
			},
			[]clientv3.Op{
				clientv3.OpPut(l.key, l.value, clientv3.WithLease(l.lease)),
				clientv3.OpPut(k.epoch(), decimal(next)),
				clientv3.OpPut(k.tokens(), decimal(last+tokenBlock)),
				clientv3.OpGet(k.beat()),
				l.c.getChunk(clientv3.SortAscend), l.c.getChunk(clientv3.SortDescend),
			},
			[]clientv3.Op{clientv3.OpGet(l.key), clientv3.OpGet(k.epoch()), clientv3.OpGet(k.tokens())})
		switch {
		case err != nil:
			return err
		case resp.Succeeded:
			l.epoch, l.fence = uint32(next), resp.Header.Revision
			l.before, l.last, l.reserved = lock.Token(last), lock.Token(last), lock.Token(last+tokenBlock)
			l.first.Store(l.c.offsetOf(one(resp, 4)))
			l.next.Store(l.c.endOf(one(resp, 5)))
			l.c.sawBeat(one(resp, 3))
			return nil
		case one(resp, 0).GetCreateRevision() != l.create,
			one(resp, 1).GetModRevision() == epoch.GetModRevision() && one(resp, 2).GetModRevision() == tokens.GetModRevision():
			return errNotElected
		}
	}
}
