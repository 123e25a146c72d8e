package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/record"
)

// Load implements [lock.Log]. All holds are from one revision of etcd. It appends the entries of grants that the history of the last term has lost.
func (l *Log) Load(ctx context.Context) (lock.Loaded, error) {
	holds, err := l.c.holds(ctx)
	if err == nil {
		err = l.completeHistory(ctx, holds)
	}
	for i := range holds {
		h := &holds[i]
		h.Acquired.Boot, h.Renewed.Boot = h.Acquired.Boot-l.shift, h.Renewed.Boot-l.shift
	}
	return lock.Loaded{Holds: holds, Last: l.lastToken, Start: l.epoch}, err
}

// pageSize is the number of keys that one request reads.
const pageSize = 2000

// holds returns all holds in the order of their tokens, with times on the timeline. It reads them at one revision,
// which etcd retains until compaction, minutes later.
func (c *Cluster) holds(ctx context.Context) (all []lock.Hold, err error) {
	from, end := c.keys.locks(), clientv3.GetPrefixRangeEnd(c.keys.locks())
	revision := int64(0)
	for more := true; more; {
		resp, err := c.members.get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(pageSize), clientv3.WithRev(revision))
		if err != nil {
			return nil, fmt.Errorf("etcd: reading the locks: %w", errors.Join(ctx.Err(), withoutGRPC(err)))
		}
		for _, kv := range resp.Kvs {
			from = string(kv.Key) + "\x00"
			name, token, err := c.keys.holdOf(kv.Key)
			if err != nil {
				return nil, err
			}
			h, err := decodeHold(kv.Value, name, token)
			if err != nil {
				return nil, fmt.Errorf("etcd: the lock %q with token %d is damaged: %w", name, token, err)
			}
			all = append(all, h)
		}
		if more = resp.More; revision == 0 {
			revision = resp.Header.Revision
		}
	}
	slices.SortFunc(all, func(a, b lock.Hold) int { return cmp.Compare(a.Token, b.Token) })
	return all, nil
}

// decodeHold returns the hold of a value.
func decodeHold(value []byte, n lock.Name, t lock.Token) (lock.Hold, error) {
	var l record.Line
	if err := l.Decode(value); err != nil {
		return lock.Hold{}, err
	}
	if l.Kind != record.Held || l.Hold.Name != n || l.Hold.Token != t {
		return lock.Hold{}, errors.New("want the line of this lock, found another one")
	}
	return l.Hold, nil
}
