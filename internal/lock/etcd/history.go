package etcd

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// The history is chunks of entries. The key of a chunk is its offset: how many bytes of chunks were written before it, as 16 hexadecimal
// digits. So the first and the last chunk give the size of the history, and a part of it is one range of keys.

func (k keys) history() string           { return string(k) + "history/" }
func (k keys) chunk(offset int64) string { return fmt.Sprintf("%s%016x", k.history(), offset) }
func (c *Cluster) historyEnd() string    { return clientv3.GetPrefixRangeEnd(c.keys.history()) }

// getChunk reads the first chunk, or the last.
func (c *Cluster) getChunk(order clientv3.SortOrder) clientv3.Op {
	return clientv3.OpGet(c.keys.history(), clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByKey, order), clientv3.WithLimit(1))
}

// offsetOf returns the offset of a chunk; nil: there is none.
func (c *Cluster) offsetOf(kv *mvccpb.KeyValue) int64 {
	n, _ := strconv.ParseInt(strings.TrimPrefix(string(kv.GetKey()), c.keys.history()), 16, 64)
	return n
}

// endOf returns the offset behind a chunk.
func (c *Cluster) endOf(kv *mvccpb.KeyValue) int64 { return c.offsetOf(kv) + int64(len(kv.GetValue())) }

// Size returns how many bytes the history has.
func (l *Log) Size() int64 { return l.next.Load() - l.first.Load() }

// entryOf returns the entry of the history that a record is.
func entryOf(r *lock.Record) lock.Entry {
	h := &r.Hold
	e := lock.Entry{At: r.At, Cause: r.Cause, Name: h.Name, Token: h.Token, By: r.By, Owner: h.Owner, Note: r.Note, File: r.File, Automatic: h.Automatic}
	if r.Kind == lock.Ended && h.Acquired != (lock.Instant{}) {
		e.Held = max(0, r.At.Boot-h.Acquired.Boot)
	}
	return e
}

// History implements [lock.History]. It has all entries of records that were written before the call.
func (l *Log) History(ctx context.Context, name lock.Name) iter.Seq2[lock.Entry, error] {
	return func(yield func(lock.Entry, error) bool) {
		if err := l.flush(ctx); err != nil {
			yield(lock.Entry{}, err)
			return
		}
		l.c.History(ctx, name)(yield)
	}
}

// History yields the entries of a lock, what its holders published, and the publications of a file of that name, the oldest
// first, as far as the history goes back. The active server writes an entry up to a second later. It stops at the first error.
func (c *Cluster) History(ctx context.Context, name lock.Name) iter.Seq2[lock.Entry, error] {
	return func(yield func(lock.Entry, error) bool) {
		for entry, err := range c.entries(ctx, []byte(name)) {
			if err == nil && !entry.Concerns(name) {
				continue
			}
			if !yield(entry, err) {
				return
			}
		}
	}
}

// entries yields the entries of the chunks that contain these bytes.
func (c *Cluster) entries(ctx context.Context, with []byte) iter.Seq2[lock.Entry, error] {
	return func(yield func(lock.Entry, error) bool) {
		for kv, err := range c.chunks(ctx) {
			if err != nil {
				yield(lock.Entry{}, err)
				return
			}
			if !bytes.Contains(kv.Value, with) {
				continue
			}
			all, err := decodeChunk(kv.Value)
			if err != nil {
				yield(lock.Entry{}, fmt.Errorf("etcd: the history at %s: %w", kv.Key, err))
				return
			}
			for _, entry := range all {
				if !yield(entry, nil) {
					return
				}
			}
		}
	}
}

// chunks yields the keys of the history, the oldest first.
func (c *Cluster) chunks(ctx context.Context) iter.Seq2[*mvccpb.KeyValue, error] {
	return func(yield func(*mvccpb.KeyValue, error) bool) {
		for from := c.keys.history(); ; {
			resp, err := c.members.get(ctx, from, clientv3.WithRange(c.historyEnd()), clientv3.WithLimit(chunkPage))
			if err != nil {
				yield(nil, fmt.Errorf("etcd: reading the history: %w", plain(err)))
				return
			}
			for _, kv := range resp.Kvs {
				if !yield(kv, nil) {
					return
				}
				from = string(kv.Key) + "\x00"
			}
			if !resp.More {
				return
			}
		}
	}
}

// chunkPage is how many chunks are read, or removed, by one request. etcd does nothing else while it removes them.
const chunkPage = 16

// Sweep removes the part of the history that is older or larger than the Options allow.
func (l *Log) Sweep(ctx context.Context) error {
	for {
		end, err := l.excess(ctx)
		if err == nil && end > 0 {
			end, err = l.removeUntil(ctx, end)
		}
		if err != nil {
			return fmt.Errorf("etcd: removing old history: %w", plain(err))
		}
		if end == 0 {
			return nil
		}
	}
}

// excess returns the end of the oldest chunks that are to be removed, of a few at most; 0: there is none.
func (l *Log) excess(ctx context.Context) (end int64, err error) {
	o := &l.c.o
	resp, err := l.c.members.get(ctx, l.c.keys.history(), clientv3.WithPrefix(), clientv3.WithLimit(chunkPage))
	if err != nil {
		return 0, err
	}
	for _, kv := range resp.Kvs {
		entries, err := decodeChunk(kv.Value)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", kv.Key, err)
		}
		tooMuch := o.HistorySize > 0 && l.next.Load()-l.c.offsetOf(kv) > o.HistorySize
		tooOld := o.HistoryAge > 0 && len(entries) > 0 && o.Clock.Now().Wall.Sub(entries[0].At.Wall) > o.HistoryAge
		if !tooMuch && !tooOld {
			break
		}
		end = l.c.endOf(kv)
	}
	return end, nil
}

// removeUntil removes the chunks before an offset, which it returns.
func (l *Log) removeUntil(ctx context.Context, end int64) (int64, error) {
	resp, err := l.c.members.txn(ctx, []clientv3.Cmp{l.mine()},
		[]clientv3.Op{clientv3.OpDelete(l.c.keys.chunk(0), clientv3.WithRange(l.c.keys.chunk(end)))}, nil)
	if err == nil && !resp.Succeeded {
		err = l.depose("its election key is gone")
	}
	if err == nil {
		l.first.Store(end)
	}
	return end, err
}
