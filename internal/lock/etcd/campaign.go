package etcd

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// errNotElected reports that this server's election key is gone, or another one's is older.
var errNotElected = errors.New("the election key is gone")

// lookEvery is the interval at which a standby reads etcd. It differs from beatEvery, so that some read soon follows right after a beat.
const lookEvery = 900 * time.Millisecond

// Campaign waits until this server is the active one, and returns the log of its term; or until ctx ends, and returns its error. Until
// then it tries again and again, and logs why it cannot stand by. Start [Log.Run] right after it: Run renews the lease.
//
// A server stands by with an election key of its own, which ends with its lease. The server with the oldest key takes over.
func (c *Cluster) Campaign(ctx context.Context) (*Log, error) {
	s := standing{c: c, warned: make(map[string]bool)}
	var removed clientv3.WatchChan
	watched, stop := -1, func() {}
	defer func() { stop() }()
	logged := ""
	for {
		if i := c.members.pick(); i != watched {
			stop()
			watched = i
			removed, stop = c.removals(ctx, i)
		}
		before := s.lease
		l, err := s.look(ctx)
		switch {
		case l != nil:
			return l, nil
		case ctx.Err() != nil:
			s.leave(ctx)
			return nil, ctx.Err()
		case err != nil && err.Error() != logged:
			logged = err.Error()
			c.o.Log.Warn("this server cannot stand by, or take over, and tries again", "err", plain(err))
		}
		if before == 0 && s.lease != 0 {
			continue // it may be the first one
		}
		select {
		case _, ok := <-removed:
			if !ok { // etcd may refuse the next one as quickly
				removed, watched = nil, -1
				pause(ctx, lookEvery)
			}
		case <-time.After(lookEvery):
		case <-ctx.Done():
		}
	}
}

// removals returns a channel that gets a message when an election key goes. It is a hint: a member of etcd that hangs sends none.
func (c *Cluster) removals(ctx context.Context, member int) (removed clientv3.WatchChan, stop func()) {
	client, err := c.members.use(member)
	if err != nil {
		return nil, func() {}
	}
	ctx, stop = context.WithCancel(ctx)
	return client.Watch(ctx, c.keys.servers(), clientv3.WithPrefix(), clientv3.WithFilterPut()), stop
}

// standing is one campaign of a server.
type standing struct {
	c      *Cluster
	lease  clientv3.LeaseID // of the election key; 0: there is none
	warned map[string]bool
}

// look reads the beat and the election keys, and puts this server's own key, with the last round trips. If etcd has answered in time, the
// lease is renewed: a server that etcd answers too late keeps no place in the line. look returns the log if this server is the first
// one and has taken over.
func (s *standing) look(ctx context.Context) (*Log, error) {
	c := s.c
	ops := []clientv3.Op{clientv3.OpGet(c.keys.beat())}
	if s.lease != 0 {
		ops = append(ops, clientv3.OpPut(c.keys.server(s.lease), encode(c.self()), clientv3.WithLease(s.lease)))
	}
	ops = append(ops, c.getServers())
	var resp *clientv3.TxnResponse
	sent := time.Now()
	err := c.members.do(ctx, func(ctx context.Context, client *clientv3.Client) (err error) {
		sent = time.Now()
		resp, err = client.Txn(ctx).Then(ops...).Commit()
		return err
	})
	if isLeaseNotFound(err) {
		s.lease = 0
		return nil, nil
	}
	servers := kvs(resp, len(ops)-1)
	slow := s.looked(servers, one(resp, 0), time.Since(sent), err)
	switch {
	case s.lease == 0 && slow == nil:
		s.lease, err = c.grant(ctx)
		return nil, err
	case s.lease == 0:
		return nil, slow
	case err != nil:
		return nil, err
	}
	until, err := c.keepAlive(ctx, s.lease)
	switch {
	case isLeaseNotFound(err):
		s.lease = 0
		return nil, nil
	case err != nil || string(servers[0].Key) != c.keys.server(s.lease):
		return nil, err
	}
	l := newLog(c, s.lease, servers[0].CreateRevision)
	l.deadline.Store(int64(until))
	if err := l.takeOver(ctx); err != nil {
		l.end()
		return nil, err
	}
	l.writing.Go(l.write)
	return l, nil
}

// looked takes over what a look has found, and warns once of each mistake. It returns why this server must not stand by; nil: it may.
func (s *standing) looked(servers []*mvccpb.KeyValue, beat *mvccpb.KeyValue, took time.Duration, err error) (slow error) {
	c, now := s.c, s.c.o.Clock.Exact()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trips.add(took, err)
	if err != nil {
		return err
	}
	c.timeline.see(beat, now)
	if c.known = len(servers) > 0; c.known {
		c.leader = decodeServer(servers[0])
	}
	if len(c.timeline.shifts) > 2 && c.timeline.skew.Abs() > maxSkew && !s.warned["skew"] {
		s.warned["skew"] = true
		c.o.Log.Warn("the wall clocks of two servers differ: ages go by them after a cold start", "server", c.leader.String(), "by", c.timeline.skew)
	}
	for _, kv := range servers {
		if other := decodeServer(kv); other.Rules != c.o.Self.Rules && !s.warned[other.Name+other.Rules] {
			s.warned[other.Name+other.Rules] = true
			c.o.Log.Warn("another server has other rules: locks change with who is active", "server", other.String())
		}
	}
	return c.trips.slow(c.o.RequestTimeout)
}

// leave removes this server from the line.
func (s *standing) leave(ctx context.Context) {
	if s.lease != 0 {
		_ = s.c.revoke(context.WithoutCancel(ctx), s.lease) // otherwise the lease ends by itself
	}
}

// self returns what a server that stands by publishes: itself, and the longest of its last round trips.
func (c *Cluster) self() Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	self := c.o.Self
	self.RoundTrip = max(slices.Max(c.trips.last).Round(time.Millisecond), time.Millisecond)
	return self
}

// grant requests a lease.
func (c *Cluster) grant(ctx context.Context) (lease clientv3.LeaseID, err error) {
	err = c.members.do(ctx, func(ctx context.Context, client *clientv3.Client) error {
		resp, err := client.Grant(ctx, int64((c.o.TTL+time.Second-1)/time.Second))
		if err == nil {
			lease = resp.ID
		}
		return err
	})
	return lease, err
}

// keepAlive renews a lease, and returns until when it surely lasts, in time since boot. It lasts from when etcd received the request, so
// it is counted from before that was sent.
func (c *Cluster) keepAlive(ctx context.Context, lease clientv3.LeaseID) (until time.Duration, err error) {
	err = c.members.do(ctx, func(ctx context.Context, client *clientv3.Client) error {
		sent := c.o.Clock.Exact().Boot
		resp, err := client.KeepAliveOnce(ctx, lease)
		if err == nil {
			until = sent + time.Duration(resp.TTL)*time.Second - c.o.Margin
		}
		if isLeaseNotFound(err) { // a renewal does not report of which cluster the member is
			if _, other := client.TimeToLive(ctx, lease); errors.Is(other, errOtherCluster) {
				return other
			}
		}
		return err
	})
	return until, err
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
			l.shift = l.c.shift(one(resp, 3))
			return nil
		case one(resp, 0).GetCreateRevision() != l.create,
			one(resp, 1).GetModRevision() == epoch.GetModRevision() && one(resp, 2).GetModRevision() == tokens.GetModRevision():
			return errNotElected
		}
	}
}

// shift returns the shift of a term that begins now, after the last beat.
func (c *Cluster) shift(last *mvccpb.KeyValue) time.Duration {
	now := c.o.Clock.Exact()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.timeline.shift(last, now)
}
