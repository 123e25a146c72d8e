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

// pollEvery is the interval at which a standby reads etcd.
const pollEvery = 100 * time.Millisecond

// Campaign waits until this server is the active one, and returns the log of its term; or until ctx ends, and returns its error. It
// repeats failed requests, and logs each failure once. Call [Log.Run] at once: Run renews the lease.
//
// Each server that stands by has an election key, which ends with its lease. The server with the oldest key takes over. A server that could not serve
// has another key with the reason instead. When it could serve again, it stands by behind the others.
func (c *Cluster) Campaign(ctx context.Context) (*Log, error) {
	s := candidacy{c: c}
	logged := ""
	for {
		before := s.lease
		l, err := s.poll(ctx)
		switch {
		case l != nil:
			return l, nil
		case ctx.Err() != nil:
			if s.lease != 0 {
				_ = c.revoke(context.WithoutCancel(ctx), s.lease) // after an error the lease ends at its time
			}
			return nil, ctx.Err()
		case err == nil:
			logged = ""
		case err.Error() != logged:
			logged = err.Error()
			c.o.Log.Warn("this server cannot stand by, or take over, and tries again", "err", withoutGRPC(err))
		}
		if before == 0 && s.lease != 0 {
			continue // its key may be the oldest
		}
		pause(ctx, pollEvery)
	}
}

// candidacy is the place of a server among those that stand by.
type candidacy struct {
	c       *Cluster
	lease   clientv3.LeaseID // of the election key or the key with the reason; 0: there is none
	reason  string           // why this server could not serve; "": it has an election key
	renewed time.Duration    // time since boot of the last renewal
	until   time.Duration    // time since boot at which the lease may end
	failed  time.Time        // of the last poll that failed
	value   string           // of the election key
}

// poll reads the beat and the election keys, renews the lease, and takes over if this server's key is the oldest. It returns the log then.
//
// If etcd does not answer in time, poll does not renew the lease. If that lasts until the lease expires, this server loses its place: as the
// active one it could change nothing. It gets a place again after etcd has answered every poll for a ttl.
func (s *candidacy) poll(ctx context.Context) (*Log, error) {
	c := s.c
	var err error
	if c.members.cluster.Load() == 0 {
		err = c.Check(ctx)
	}
	var resp *clientv3.TxnResponse
	if err == nil {
		resp, err = c.members.txn(ctx, nil, []clientv3.Op{c.getServers(), clientv3.OpGet(c.keys.beat()), clientv3.OpGet(c.keys.format())}, nil)
	}
	if err == nil {
		err = c.keys.checkFormat(firstKeyRead(resp, 2))
	}
	servers := keysRead(resp, 0)
	s.recordPoll(servers, firstKeyRead(resp, 1), err)
	if _, foreign := errors.AsType[*FormatError](err); foreign && s.lease != 0 { // this server is no standby
		err = errors.Join(err, c.revoke(ctx, s.lease))
		s.lease = 0
	}
	if err != nil {
		s.failed = time.Now()
		return nil, err
	}
	if c.o.CanServe != nil {
		if reason := c.o.CanServe(); reason != nil {
			return nil, s.stepAside(ctx, reason.Error())
		}
	}
	if s.reason != "" {
		if err := c.revoke(ctx, s.lease); err != nil {
			return nil, err
		}
		s.lease, s.reason = 0, ""
	}
	key := c.keys.server(s.lease)
	if !slices.ContainsFunc(servers, func(kv *mvccpb.KeyValue) bool { return string(kv.Key) == key }) {
		s.lease = 0
		if time.Since(s.failed) < c.o.TTL {
			return nil, nil
		}
		return nil, s.join(ctx)
	}
	if err := s.renew(ctx); err != nil {
		return nil, err
	}
	if value := c.value(); value != s.value { // its settings have changed
		if err := c.members.put(ctx, key, value, clientv3.WithLease(s.lease)); err != nil {
			return nil, err
		}
		s.value = value
	}
	if string(servers[0].Key) != key {
		return nil, nil
	}
	l := newLog(c, s.lease, servers[0].CreateRevision)
	l.deadline.Store(int64(s.until))
	if err := l.takeOver(ctx); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// renew renews the lease if it is due.
func (s *candidacy) renew(ctx context.Context) (err error) {
	c := s.c
	if now := c.o.Clock.Exact().Boot; now-s.renewed >= c.o.TTL/4 || s.renewed == 0 {
		if s.until, err = c.keepAlive(ctx, s.lease); err != nil {
			return err
		}
		s.renewed = now
	}
	return nil
}

// stepAside replaces the election key by a key with the reason why this server could not serve, and renews its lease.
func (s *candidacy) stepAside(ctx context.Context, reason string) error {
	c := s.c
	if s.reason == reason {
		err := s.renew(ctx)
		if isLeaseNotFound(err) {
			s.lease, s.reason = 0, ""
		}
		return err
	}
	if s.lease != 0 {
		if err := c.revoke(ctx, s.lease); err != nil {
			return err
		}
		s.lease, s.reason = 0, ""
	}
	c.mu.Lock()
	self := c.self
	c.mu.Unlock()
	self.NotReady = reason
	if err := s.put(ctx, c.keys.notReady, encode(self)); err != nil {
		return err
	}
	s.reason = reason
	return nil
}

// recordPoll records the result of a poll.
func (s *candidacy) recordPoll(servers []*mvccpb.KeyValue, beat *mvccpb.KeyValue, err error) {
	c, now := s.c, s.c.o.Clock.Exact()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.standbyState = Reason(err)
		return
	}
	if c.standbyState = "no server is active"; len(servers) > 0 {
		active := decodeServer(servers[0])
		c.standbyState = active.String() + " is active"
		if string(servers[0].Key) == c.keys.server(s.lease) {
			active = Server{} // this one is about to take over
		}
		c.compareLocked(active)
	}
	c.timeline.addBeat(beat, now)
}

// join puts the election key, with a new lease.
func (s *candidacy) join(ctx context.Context) error { return s.put(ctx, s.c.keys.server, s.c.value()) }

// put puts a key of this server, with a new lease.
func (s *candidacy) put(ctx context.Context, key func(clientv3.LeaseID) string, value string) error {
	c := s.c
	var lease clientv3.LeaseID
	err := c.members.sendToAny(ctx, func(ctx context.Context, client *clientv3.Client) error {
		resp, err := client.Grant(ctx, int64((c.o.TTL+time.Second-1)/time.Second))
		if err == nil {
			lease = resp.ID
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := c.members.put(ctx, key(lease), value, clientv3.WithLease(lease)); err != nil {
		return err
	}
	s.lease, s.renewed, s.value = lease, 0, value
	return nil
}

// keepAlive renews a lease, and returns the time since boot at which it may end. etcd counts from when it receives the request, so
// keepAlive counts from before it sends it.
func (c *Cluster) keepAlive(ctx context.Context, lease clientv3.LeaseID) (until time.Duration, err error) {
	err = c.members.sendToAny(ctx, func(ctx context.Context, client *clientv3.Client) error {
		sent := c.o.Clock.Exact().Boot
		resp, err := client.KeepAliveOnce(ctx, lease)
		if err == nil {
			until = sent + time.Duration(resp.TTL)*time.Second - c.o.Margin
		}
		return err
	})
	return until, err
}

func (c *Cluster) revoke(ctx context.Context, lease clientv3.LeaseID) error {
	return c.members.sendToAny(ctx, func(ctx context.Context, client *clientv3.Client) error {
		_, err := client.Revoke(ctx, lease)
		if isLeaseNotFound(err) {
			return nil
		}
		return err
	})
}

// errNotElected reports that this server's election key is gone, or that another key is older.
var errNotElected = errors.New("this server does not hold the oldest election key")

// takeOver moves the fence, on the condition that this server's key is still the oldest. So nothing that another server sent before is
// applied later. Then it writes the epoch, the format and the first block of tokens, as the first batch of the term.
func (l *Log) takeOver(ctx context.Context) error {
	k, value := l.c.keys, l.c.value()
	resp, err := l.c.members.txn(ctx,
		[]clientv3.Cmp{l.keyUnchanged(), clientv3.Compare(clientv3.CreateRevision(k.servers()), ">", l.createRevision-1).WithPrefix()},
		[]clientv3.Op{
			l.putKey(value), clientv3.OpGet(k.epoch()), clientv3.OpGet(k.tokens()), clientv3.OpGet(k.beat()),
			l.c.getChunk(clientv3.SortAscend), l.c.getChunk(clientv3.SortDescend), clientv3.OpGet(k.format()),
		}, nil)
	if err != nil {
		return err
	}
	if !resp.Succeeded {
		return errNotElected
	}
	if err := k.checkFormat(firstKeyRead(resp, 6)); err != nil {
		return err
	}
	l.fence, l.value = resp.Header.Revision, value
	l.epoch = uint32(parseDecimal(firstKeyRead(resp, 1))) + 1
	l.lastToken = max(lock.Token(parseDecimal(firstKeyRead(resp, 2))), l.c.o.After)
	l.reserved, l.wanted = l.lastToken, l.lastToken+tokenBlock
	l.firstOffset.Store(l.c.offsetOf(firstKeyRead(resp, 4)))
	l.nextOffset.Store(l.c.endOf(firstKeyRead(resp, 5)))
	l.c.mu.Lock()
	l.shift = l.c.timeline.shift(firstKeyRead(resp, 3), l.c.o.Clock.Exact())
	l.c.mu.Unlock()

	first := newBatch(0)
	first.add(clientv3.OpPut(k.epoch(), decimal(uint64(l.epoch))), k.putFormat())
	l.queue = append(l.queue, first)
	l.writing.Go(l.write)
	return l.await(ctx, first)
}
