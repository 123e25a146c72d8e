package etcd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// A move to or from another store goes while all servers are stopped. Each transaction of it compares that there is none. The key
// "closed" keeps them from taking over: while an import is under way or after it was cut short, and after the locks have moved away.

// importing is the value of the key while an import is under way.
const importing = `an import has not come to its end: call "ftplockd migrate" again`

func (c *Cluster) closedError(kv *mvccpb.KeyValue) error {
	return &ClosedError{Prefix: c.o.Prefix, Reason: string(kv.Value)}
}

// Export returns the holds, the last token and the last epoch, and the history. It returns ErrActive
// unless all servers are stopped, and a *ClosedError where the locks are not, or not whole.
func (c *Cluster) Export(ctx context.Context) (lock.Loaded, iter.Seq2[lock.Entry, error], error) {
	k := c.keys
	resp, err := c.members.txn(ctx, []clientv3.Cmp{c.nobody()},
		[]clientv3.Op{clientv3.OpGet(k.tokens()), clientv3.OpGet(k.epoch()), clientv3.OpGet(k.beat()), clientv3.OpGet(k.closed())}, nil)
	switch {
	case err != nil:
		return lock.Loaded{}, nil, fmt.Errorf("etcd: %w", plain(err))
	case !resp.Succeeded:
		return lock.Loaded{}, nil, ErrActive
	case one(resp, 3) != nil:
		return lock.Loaded{}, nil, c.closedError(one(resp, 3))
	}
	c.sawBeat(one(resp, 2))
	holds, err := c.load(ctx)
	loaded := lock.Loaded{Holds: holds, Last: lock.Token(number64(one(resp, 0))), Start: uint32(number64(one(resp, 1)))}
	return loaded, c.entries(ctx, nil), err
}

// Retire closes what Export has returned, with that last token: the locks have moved elsewhere, as the reason says. It returns
// ErrActive if a server is active, or was since then: each one reserves tokens. The keys stay as they are, until the next Import.
func (c *Cluster) Retire(ctx context.Context, last lock.Token, reason string) error {
	tokens, err := c.get(ctx, c.keys.tokens())
	if err != nil {
		return err
	}
	if lock.Token(number64(tokens)) != last {
		return ErrActive
	}
	closed, err := c.members.txn(ctx, []clientv3.Cmp{
		c.nobody(), clientv3.Compare(clientv3.ModRevision(c.keys.tokens()), "=", tokens.GetModRevision()),
	}, []clientv3.Op{clientv3.OpPut(c.keys.closed(), reason)}, nil)
	switch {
	case err != nil:
		return fmt.Errorf("etcd: %w", plain(err))
	case !closed.Succeeded:
		return ErrActive
	}
	return nil
}

// Import stores what Export of a log has returned. All tokens and epochs that are given afterwards are larger than the last of loaded.
// It returns ErrActive unless all servers are stopped, and ErrNotEmpty where there are locks or history, except
// those of an import that was cut short, or that have moved away: these are replaced.
func (c *Cluster) Import(ctx context.Context, loaded lock.Loaded, history iter.Seq2[lock.Entry, error]) error {
	in := importer{c: c, id: rand.Text()}
	if err := in.begin(ctx, loaded); err != nil {
		return err
	}
	var chunk []byte
	offset := int64(0)
	write := func() error {
		if len(chunk) == 0 {
			return nil
		}
		value := chunkVersion + string(chunk)
		key := c.keys.chunk(offset)
		chunk, offset = chunk[:0], offset+int64(len(value))
		return in.put(ctx, key, value)
	}
	for entry, err := range history {
		if err != nil {
			return err
		}
		if chunk = appendEntry(chunk, entry); len(chunk) > historyChunk {
			if err := write(); err != nil {
				return err
			}
		}
	}
	if err := write(); err != nil {
		return err
	}
	for _, h := range loaded.Holds {
		if err := in.put(ctx, c.keys.lock(h.Name, h.Token), encodeHold(h, c.boots.own)); err != nil {
			return err
		}
	}
	return in.finish(ctx)
}

// importer puts keys, many by one transaction, as long as no server is there and nobody else imports.
type importer struct {
	c     *Cluster
	id    string // nobody else's
	done  int    // transactions that were made
	guard int64  // ModRevision of the key that each of them puts: one that comes late fails
	epoch uint64
	ops   []clientv3.Op
	bytes int
}

// begin closes the prefix, and removes what is there from an earlier time.
func (in *importer) begin(ctx context.Context, loaded lock.Loaded) error {
	c := in.c
	resp, err := c.members.txn(ctx, nil, []clientv3.Op{
		clientv3.OpGet(c.keys.closed()),
		clientv3.OpGet(c.keys.tokens()),
		clientv3.OpGet(c.keys.epoch()),
		clientv3.OpGet(c.keys.locks(), clientv3.WithPrefix(), clientv3.WithLimit(1)),
		clientv3.OpGet(c.keys.history(), clientv3.WithPrefix(), clientv3.WithLimit(1)),
		clientv3.OpGet(c.keys.moving()),
	}, nil)
	if err != nil {
		return fmt.Errorf("etcd: %w", plain(err))
	}
	closed := one(resp, 0)
	if closed == nil && len(kvs(resp, 3))+len(kvs(resp, 4)) > 0 {
		return fmt.Errorf("etcd: below %s: %w", c.o.Prefix, ErrNotEmpty)
	}
	in.epoch = max(uint64(loaded.Start), number64(one(resp, 2)))
	in.guard = one(resp, 5).GetModRevision()
	in.ops = []clientv3.Op{
		clientv3.OpPut(c.keys.closed(), importing),
		clientv3.OpPut(c.keys.tokens(), decimal(max(uint64(loaded.Last), number64(one(resp, 1))))),
	}
	if err := in.flush(ctx, clientv3.Compare(clientv3.ModRevision(c.keys.tokens()), "=", one(resp, 1).GetModRevision())); err != nil {
		return err
	}
	return errors.Join(in.remove(ctx, c.keys.locks()), in.remove(ctx, c.keys.history()))
}

// remove removes all keys with a prefix, some at a time.
func (in *importer) remove(ctx context.Context, prefix string) error {
	for {
		resp, err := in.c.members.get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(pageSize))
		if err != nil {
			return fmt.Errorf("etcd: %w", plain(err))
		}
		if len(resp.Kvs) == 0 {
			return nil
		}
		end := string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
		in.ops = []clientv3.Op{clientv3.OpDelete(prefix, clientv3.WithRange(end))}
		if err := in.flush(ctx); err != nil {
			return err
		}
	}
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

// flush makes the transaction. The library, or another member, may be asked twice: its mark tells whether it was made.
func (in *importer) flush(ctx context.Context, when ...clientv3.Cmp) error {
	key, mark := in.c.keys.moving(), fmt.Sprintf("%s-%d", in.id, in.done)
	resp, err := in.c.members.txn(ctx,
		append(when, in.c.nobody(), clientv3.Compare(clientv3.ModRevision(key), "=", in.guard)),
		append(in.ops, clientv3.OpPut(key, mark)),
		[]clientv3.Op{in.c.getServers(), clientv3.OpGet(key)})
	if err != nil {
		return fmt.Errorf("etcd: %w", plain(err))
	}
	moved := one(resp, 1)
	switch {
	case resp.Succeeded:
		in.guard = resp.Header.Revision
	case string(moved.GetValue()) == mark:
		in.guard = moved.ModRevision
	case len(kvs(resp, 0)) > 0:
		return ErrActive
	default:
		return errors.New("etcd: somebody else imports, too: call this again")
	}
	in.ops, in.bytes, in.done = nil, 0, in.done+1
	return nil
}

// finish lets servers in.
func (in *importer) finish(ctx context.Context) error {
	if len(in.ops) > 0 {
		if err := in.flush(ctx); err != nil {
			return err
		}
	}
	in.ops = []clientv3.Op{
		clientv3.OpPut(in.c.keys.epoch(), decimal(in.epoch)),
		clientv3.OpDelete(in.c.keys.closed()),
	}
	return in.flush(ctx)
}
