package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// Load implements [lock.Log]. All holds are those of one revision of etcd.
func (l *Log) Load(ctx context.Context) (lock.Loaded, error) {
	holds, err := l.c.load(ctx, l.shift)
	loaded := lock.Loaded{Holds: holds, Last: l.before, Start: l.epoch}
	if n := len(holds); n > 0 {
		loaded.Last = max(loaded.Last, holds[n-1].Token)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = max(l.last, loaded.Last)
	return loaded, err
}

// load returns all holds in the order of their tokens. The shift is that of this server's clock.
func (c *Cluster) load(ctx context.Context, shift time.Duration) ([]lock.Hold, error) {
	found, err := c.readLocks(ctx)
	if err != nil {
		return nil, err
	}
	holds := make([]lock.Hold, 0, len(found))
	for _, kv := range found {
		name, token, err := c.keys.holdOf(kv.Key)
		if err != nil {
			return nil, err
		}
		h, err := decodeHold(kv.Value, name, token)
		if err != nil {
			return nil, fmt.Errorf("etcd: the lock %q with token %d: %w", name, token, err)
		}
		h.Acquired.Boot, h.Renewed.Boot = h.Acquired.Boot-shift, h.Renewed.Boot-shift
		holds = append(holds, h)
	}
	slices.SortFunc(holds, func(a, b lock.Hold) int { return cmp.Compare(a.Token, b.Token) })
	return holds, nil
}

// pageSize is how many keys are read, or removed, by one request.
const pageSize = 2000

// readLocks reads all locks at one revision. Compaction by etcd's own settings keeps that for minutes.
func (c *Cluster) readLocks(ctx context.Context) (all []*mvccpb.KeyValue, err error) {
	from, end := c.keys.locks(), clientv3.GetPrefixRangeEnd(c.keys.locks())
	for revision := int64(0); ; {
		resp, err := c.members.get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(pageSize), clientv3.WithRev(revision))
		if err != nil {
			return nil, fmt.Errorf("etcd: reading the locks: %w", errors.Join(ctx.Err(), plain(err)))
		}
		all = append(all, resp.Kvs...)
		if revision == 0 {
			revision = resp.Header.Revision
		}
		if !resp.More {
			return all, nil
		}
		from = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
	}
}
