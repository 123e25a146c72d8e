package etcd

import (
	"context"
	"errors"
	"fmt"
	"iter"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// errNotEmpty is returned by Import where there are locks.
var errNotEmpty = errors.New("there are locks already; an import that was cut short leaves some: remove all keys below the prefix, and import again")

// Export returns all that is stored: the records, a token that is not smaller than any that was given, and the history. It returns ErrActive
// unless all servers are stopped.
func (c *Cluster) Export(ctx context.Context) (records []lock.Record, last lock.Token, history iter.Seq2[lock.Entry, error], err error) {
	resp, err := c.members.txn(ctx, []clientv3.Cmp{c.nobody()}, []clientv3.Op{clientv3.OpGet(c.keys.base())}, nil)
	if err != nil {
		return nil, 0, nil, fmt.Errorf("etcd: %w", err)
	}
	if !resp.Succeeded {
		return nil, 0, nil, ErrActive
	}
	base := lock.Token(number(one(resp, 0)))
	found, revision, err := c.readLocks(ctx)
	for _, kv := range found {
		record, err := decodeLock(c.keys.nameOf(kv.Key), kv, base)
		if err != nil {
			return nil, 0, nil, err
		}
		records = append(records, record)
	}
	return records, base + lock.Token(revision), c.entries(ctx, nil), err
}

// Import stores what Export of a store has returned. All tokens that are given afterwards are larger than last. There must be no
// locks yet, and it returns ErrActive unless all servers are stopped.
func (c *Cluster) Import(ctx context.Context, records []lock.Record, last lock.Token, history iter.Seq2[lock.Entry, error]) error {
	resp, err := c.members.txn(ctx, nil, []clientv3.Op{
		clientv3.OpGet(c.keys.locks(), clientv3.WithPrefix(), clientv3.WithCountOnly()),
		clientv3.OpGet(c.keys.base()),
		c.getLine(clientv3.SortDescend),
	}, nil)
	if err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	if resp.Responses[0].GetResponseRange().Count > 0 {
		return errNotEmpty
	}
	base := max(last, lock.Token(number(one(resp, 1))))
	if _, err := c.putBase(ctx, one(resp, 1), base); err != nil {
		return err
	}
	in := importer{c: c, offset: c.endOf(one(resp, 2))}
	for entry, err := range history {
		if err != nil {
			return err
		}
		value := encodeEntry(entry, base)
		if err := in.put(ctx, c.keys.line(in.offset), value); err != nil {
			return err
		}
		in.offset += int64(len(value))
	}
	for _, record := range records {
		if err := in.put(ctx, c.keys.lock(record.Name), encode(lockValue{Base: base, Holds: holdValues(record.Holds)})); err != nil {
			return err
		}
	}
	return in.flush(ctx)
}

// importer puts keys, many by one transaction, as long as no server is there.
type importer struct {
	c      *Cluster
	offset int64 // of the next line of the history
	ops    []clientv3.Op
	bytes  int
}

// Bounds of one transaction: etcd takes 128 operations and 1.5 MiB.
const (
	importOps   = 100
	importBytes = 512 << 10
)

func (in *importer) put(ctx context.Context, key, value string) error {
	if len(in.ops) == importOps || len(in.ops) > 0 && in.bytes+len(key)+len(value) > importBytes {
		if err := in.flush(ctx); err != nil {
			return err
		}
	}
	in.ops, in.bytes = append(in.ops, clientv3.OpPut(key, value)), in.bytes+len(key)+len(value)
	return nil
}

func (in *importer) flush(ctx context.Context) error {
	if len(in.ops) == 0 {
		return nil
	}
	resp, err := in.c.members.txn(ctx, []clientv3.Cmp{in.c.nobody()}, in.ops, nil)
	if err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	if !resp.Succeeded {
		return ErrActive
	}
	in.ops, in.bytes = nil, 0
	return nil
}
