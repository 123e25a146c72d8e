package etcd

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// way is what a server that campaigns has measured of its way to etcd. A server on a slow way would be suspended as soon as it was the
// active one, so it does not stand for election.
type way struct {
	trips  [looksKept]time.Duration // of the last looks, also of those that failed: an error that comes at once is no sign of a slow way
	failed error                    // of the last look
	looks  int
	lease  clientv3.LeaseID // of the election key; 0: there is none
}

// looksKept is how many looks in a row must be quick before a server stands for election, unless the first one was.
const looksKept = 5

// note takes the duration of a look into account.
func (c *Cluster) note(took time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := &c.way
	if w.looks == 0 {
		for i := range w.trips {
			w.trips[i] = took
		}
	}
	w.trips[w.looks%looksKept], w.failed = took, err
	w.looks++
}

// trip returns the longest of the last looks.
func (w *way) trip() (longest time.Duration) {
	for _, took := range w.trips {
		longest = max(longest, took)
	}
	return longest
}

// slow returns an error if this server must not stand for election now.
func (c *Cluster) slow() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch trip := c.way.trip(); {
	case c.way.looks == 0:
		return errNotMeasured
	case c.way.failed != nil:
		return c.way.failed
	case trip >= c.o.RequestTimeout:
		return fmt.Errorf("etcd took %v for an answer, and request_timeout is %v", trip.Round(time.Millisecond), c.o.RequestTimeout)
	}
	return nil
}

// stands notes the lease of the election key; 0: there is none.
func (c *Cluster) stands(lease clientv3.LeaseID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.way.lease = lease
}

// publish writes the round trip to the election key, after each look: so the active server sees what became of it since its own way is
// slow. The campaign makes the key: if it is not there, nothing is written.
func (c *Cluster) publish(ctx context.Context) {
	c.mu.Lock()
	self, lease := c.o.Self, c.way.lease
	self.RoundTrip = max(c.way.trip().Round(time.Millisecond), time.Millisecond)
	c.mu.Unlock()
	if lease == 0 {
		return
	}
	key := c.keys.server(lease)
	_ = c.members.once(ctx, func(ctx context.Context, client *clientv3.Client) error { // the next look tries again
		_, err := client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), ">", 0)).
			Then(clientv3.OpPut(key, encode(self), clientv3.WithLease(lease))).Commit()
		return err
	})
}
