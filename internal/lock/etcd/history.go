package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/record"
)

// The history is chunks of lines, one for each entry. The key of a chunk is its offset: the number of bytes of all chunks before it, as 16 hexadecimal
// digits. So the first and the last chunk give the size of the history, and a part of it is one range of keys.

func (k keys) history() string           { return string(k) + "history/" }
func (k keys) chunk(offset int64) string { return fmt.Sprintf("%s%016x", k.history(), offset) }

// getChunk reads the first chunk, or the last.
func (c *Cluster) getChunk(order clientv3.SortOrder) clientv3.Op {
	return clientv3.OpGet(c.keys.history(), clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByKey, order), clientv3.WithLimit(1))
}

// offsetOf returns the offset of a chunk; 0 for nil.
func (c *Cluster) offsetOf(kv *mvccpb.KeyValue) int64 {
	n, _ := strconv.ParseInt(strings.TrimPrefix(string(kv.GetKey()), c.keys.history()), 16, 64)
	return n
}

// endOf returns the offset behind a chunk.
func (c *Cluster) endOf(kv *mvccpb.KeyValue) int64 { return c.offsetOf(kv) + int64(len(kv.GetValue())) }

// Size returns the number of bytes of the history.
func (l *Log) Size() int64 { return l.nextOffset.Load() - l.firstOffset.Load() }

// appendEntry appends the line of a record's entry to a chunk.
func appendEntry(chunk []byte, r *lock.Record) []byte {
	return append(record.AppendEntry(chunk, r), '\n')
}

// decodeChunk returns the entries of a chunk.
func decodeChunk(chunk []byte) (all []lock.Entry, err error) {
	var l record.Line
	for row := 1; len(chunk) > 0; row++ {
		text, rest, whole := bytes.Cut(chunk, []byte("\n"))
		if err = l.Decode(text); err == nil && !whole {
			err = errors.New("want a newline at its end")
		}
		if err != nil {
			return nil, fmt.Errorf("line %d is damaged: %w", row, err)
		}
		all, chunk = append(all, l.Entry()), rest
	}
	return all, nil
}

// History implements [lock.History]. It has all entries of records that were appended before the call.
func (l *Log) History(ctx context.Context, name lock.Name) iter.Seq2[lock.Entry, error] {
	return func(yield func(lock.Entry, error) bool) {
		if err := l.flush(ctx); err != nil {
			yield(lock.Entry{}, fmt.Errorf("etcd: writing the history: %w", err))
			return
		}
		l.c.History(ctx, name)(yield)
	}
}

// History yields the entries that concern a lock, a file or a directory, see [lock.Entry.Concerns], the oldest first; with "" all entries.
// The active server writes an entry up to a second later. History stops at the first error.
func (c *Cluster) History(ctx context.Context, name lock.Name) iter.Seq2[lock.Entry, error] {
	return func(yield func(lock.Entry, error) bool) {
		from, end := c.keys.history(), clientv3.GetPrefixRangeEnd(c.keys.history())
		text := record.AppendText(nil, string(name))
		for more := true; more; {
			resp, err := c.members.get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(chunkPage))
			if err != nil {
				yield(lock.Entry{}, fmt.Errorf("etcd: reading the history: %w", withoutGRPC(err)))
				return
			}
			for _, kv := range resp.Kvs {
				from = string(kv.Key) + "\x00"
				if !bytes.Contains(kv.Value, text) {
					continue
				}
				entries, err := decodeChunk(kv.Value)
				if err != nil {
					yield(lock.Entry{}, fmt.Errorf("etcd: the history at %s: %w", kv.Key, err))
					return
				}
				for _, entry := range entries {
					if (name == "" || entry.Concerns(name)) && !yield(entry, nil) {
						return
					}
				}
			}
			more = resp.More
		}
	}
}

// completeHistory appends an entry for each hold whose grant is not in the history. The last active server was killed before it wrote the
// entry. holds are in the order of their tokens, and their times are on the timeline.
func (l *Log) completeHistory(ctx context.Context, holds []lock.Hold) error {
	if len(holds) == 0 {
		return nil
	}
	last, err := l.c.lastTokenInHistory(ctx, holds[len(holds)-1].Token)
	if err != nil {
		return err
	}
	now := l.c.o.Clock.Now().Wall
	var chunk []byte
	for i := range holds {
		h := &holds[i]
		if h.Token <= last || l.c.o.HistoryAge > 0 && now.Sub(h.Acquired.Wall) > l.c.o.HistoryAge { // Sweep has removed its entry
			continue
		}
		chunk = appendEntry(chunk, &lock.Record{Kind: lock.Granted, Cause: lock.CauseAcquire, Hold: *h, By: h.Owner, At: h.Acquired, Note: noteLate})
	}
	if len(chunk) == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.batchForLocked()
	b.chunk = append(b.chunk, chunk...)
	b.upkeep = true
	l.signal()
	return nil
}

// noteLate is the note of an entry that the next active server wrote.
const noteLate = "written after a failover"

// lastTokenInHistory returns the largest token of the history, or any token of it that is not smaller than enough. Grants are in the history
// in the order of their tokens, so all grants up to this token are in the history, or Sweep has removed them.
func (c *Cluster) lastTokenInHistory(ctx context.Context, enough lock.Token) (last lock.Token, err error) {
	end := clientv3.GetPrefixRangeEnd(c.keys.history())
	for more := true; more; {
		resp, err := c.members.get(ctx, c.keys.history(), clientv3.WithRange(end), clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend), clientv3.WithLimit(chunkPage))
		if err != nil {
			return 0, fmt.Errorf("etcd: reading the history: %w", errors.Join(ctx.Err(), withoutGRPC(err)))
		}
		for _, kv := range resp.Kvs {
			end = string(kv.Key)
			entries, err := decodeChunk(kv.Value)
			if err != nil { // a damaged history does not prevent a take-over
				c.o.Log.Warn("a part of the history cannot be read", "key", string(kv.Key), "err", err)
			}
			granted := false
			for _, e := range entries {
				last = max(last, e.Token)
				granted = granted || e.Cause == lock.CauseAcquire || e.Cause == lock.CauseAdopt
			}
			if granted || last >= enough {
				return last, nil
			}
		}
		more = resp.More
	}
	return last, nil
}

// chunkPage is the number of chunks that one request reads or removes. etcd does nothing else while it removes them.
const chunkPage = 16

// Sweep removes the part of the history that is older or larger than the Options allow.
func (l *Log) Sweep(ctx context.Context) error {
	for {
		removed, err := l.removeOldest(ctx)
		if err != nil {
			return fmt.Errorf("etcd: removing old history: %w", withoutGRPC(err))
		}
		if !removed {
			return nil
		}
	}
}

// removeOldest removes some of the oldest chunks, and reports whether there were any to remove.
func (l *Log) removeOldest(ctx context.Context) (removed bool, err error) {
	o, k := &l.c.o, l.c.keys
	resp, err := l.c.members.get(ctx, k.history(), clientv3.WithPrefix(), clientv3.WithLimit(chunkPage))
	if err != nil {
		return false, err
	}
	end := int64(0)
	for _, kv := range resp.Kvs {
		entries, err := decodeChunk(kv.Value)
		if err != nil {
			return false, fmt.Errorf("%s: %w", kv.Key, err)
		}
		tooMuch := o.HistorySize > 0 && l.nextOffset.Load()-l.c.offsetOf(kv) > o.HistorySize
		tooOld := o.HistoryAge > 0 && len(entries) > 0 && o.Clock.Now().Wall.Sub(entries[0].At.Wall) > o.HistoryAge
		if !tooMuch && !tooOld {
			break
		}
		end = l.c.endOf(kv)
	}
	if end == 0 {
		return false, nil
	}
	removal := clientv3.OpDelete(k.chunk(0), clientv3.WithRange(k.chunk(end)))
	done, err := l.c.members.txn(ctx, []clientv3.Cmp{l.keyUnchanged()}, []clientv3.Op{removal}, nil)
	if err != nil || !done.Succeeded { // otherwise the writer notices that the term is over
		return false, err
	}
	l.firstOffset.Store(end)
	return true, nil
}
