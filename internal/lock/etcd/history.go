package etcd

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// A line of the history has an offset as its key: how many bytes of lines were written before it, as 16 hexadecimal digits. So the first
// and the last line tell how long the history is, and a part of it is one range of keys. A write that was not made leaves a gap.

func (k keys) history() string          { return string(k) + "history/" }
func (k keys) line(offset int64) string { return fmt.Sprintf("%s%016x", k.history(), offset) }
func (c *Cluster) historyEnd() string   { return clientv3.GetPrefixRangeEnd(c.keys.history()) }

// getLine reads the first line, or the last.
func (c *Cluster) getLine(order clientv3.SortOrder) clientv3.Op {
	return clientv3.OpGet(c.keys.history(), clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByKey, order), clientv3.WithLimit(1))
}

// offsetOf is that of a line; nil: there is none.
func (c *Cluster) offsetOf(kv *mvccpb.KeyValue) int64 {
	return parseOffset(strings.TrimPrefix(string(kv.GetKey()), c.keys.history()))
}

// endOf is the offset behind a line.
func (c *Cluster) endOf(kv *mvccpb.KeyValue) int64 { return c.offsetOf(kv) + int64(len(kv.GetValue())) }

// place gives a write its place in the history.
func (s *Store) place(w *write) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.offset = s.next
	s.next += int64(len(w.value))
	s.pending[w] = struct{}{}
}

// placed says that nobody will ask for the write's line any more, unless it is not settled.
func (s *Store) placed(w *write) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.unsettled, w) {
		delete(s.pending, w)
	}
}

// extent returns where the history begins, and the end of the lines that nobody may still ask for.
func (s *Store) extent() (first, end int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	end = s.next
	for w := range s.pending {
		end = min(end, w.offset)
	}
	return s.first, end
}

// Size returns how many bytes the history has.
func (s *Store) Size() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next - s.first
}

// History yields what happened to the lock of that name, what its holders published, and who published a file of that name, oldest
// first, as far as the history goes back. It stops at the first error.
func (c *Cluster) History(ctx context.Context, name lock.Name) iter.Seq2[lock.Entry, error] {
	encoded, _ := text(name).MarshalText()
	key := bytes.Trim([]byte(encode(string(encoded))), `"`)
	return func(yield func(lock.Entry, error) bool) {
		for entry, err := range c.entries(ctx, key) {
			if err == nil && entry.Name != name && entry.File != name {
				continue
			}
			if !yield(entry, err) {
				return
			}
		}
	}
}

// entries yields the lines that have these bytes in them.
func (c *Cluster) entries(ctx context.Context, with []byte) iter.Seq2[lock.Entry, error] {
	return func(yield func(lock.Entry, error) bool) {
		standing := make(map[lock.Name][]lock.Hold)
		for kv, err := range c.lines(ctx) {
			var entry lock.Entry
			if err == nil && !bytes.Contains(kv.Value, with) {
				continue
			}
			if err == nil {
				entry, err = decodeEntry(kv)
			}
			if err == nil && entry.Cause != lock.CausePublish {
				entry.Held = max(entry.Held, held(standing[entry.Name], entry))
				standing[entry.Name] = entry.Holds
				if len(entry.Holds) == 0 {
					delete(standing, entry.Name)
				}
			}
			if !yield(entry, err) || err != nil {
				return
			}
		}
	}
}

// held returns how long the oldest of the holds had stood that an entry ends.
func held(before []lock.Hold, e lock.Entry) (longest time.Duration) {
	for _, h := range before {
		if slices.ContainsFunc(e.Holds, func(after lock.Hold) bool { return after.Token == h.Token }) {
			continue
		}
		stood := e.At.Boot - h.Acquired.Boot
		if e.At.BootID != h.Acquired.BootID {
			stood = e.At.Wall.Sub(h.Acquired.Wall)
		}
		longest = max(longest, stood)
	}
	return longest
}

// lines yields the keys of the history, oldest first.
func (c *Cluster) lines(ctx context.Context) iter.Seq2[*mvccpb.KeyValue, error] {
	return func(yield func(*mvccpb.KeyValue, error) bool) {
		for from := c.keys.history(); ; {
			resp, err := c.members.get(ctx, from, clientv3.WithRange(c.historyEnd()), clientv3.WithLimit(pageSize))
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

// sweepStep is how many bytes of lines are removed at once: etcd does nothing else meanwhile.
const sweepStep = 512 << 10

// Sweep removes what is older or more of the history than Options say.
func (s *Store) Sweep(ctx context.Context) error {
	cut := int64(0)
	first, next := s.extent()
	if s.c.o.HistorySize > 0 {
		cut = next - s.c.o.HistorySize
	}
	if s.c.o.HistoryAge > 0 {
		young, err := s.firstSince(ctx, first, next, s.c.o.Clock.Now().Wall.Add(-s.c.o.HistoryAge))
		if err != nil {
			return fmt.Errorf("etcd: %w", plain(err))
		}
		cut = max(cut, min(young, next))
	}
	for first < cut {
		end := min(cut, first+sweepStep)
		resp, err := s.c.members.txn(ctx, []clientv3.Cmp{s.mine()},
			[]clientv3.Op{clientv3.OpDelete(s.c.keys.line(0), clientv3.WithRange(s.c.keys.line(end)))}, nil)
		if err == nil && !resp.Succeeded {
			err = s.depose("its election key is gone")
		}
		if err != nil {
			return fmt.Errorf("etcd: removing old history: %w", plain(err))
		}
		first = end
		s.mu.Lock()
		s.first = first
		s.mu.Unlock()
	}
	return nil
}

// firstSince returns an offset before which all lines are older: it halves the range in which the first line lies that is not.
func (s *Store) firstSince(ctx context.Context, from, to int64, since time.Time) (int64, error) {
	for from < to {
		middle := from + (to-from)/2
		resp, err := s.c.members.get(ctx, s.c.keys.line(middle), clientv3.WithRange(s.c.historyEnd()), clientv3.WithLimit(1))
		if err != nil {
			return 0, err
		}
		if len(resp.Kvs) == 0 {
			to = middle
			continue
		}
		entry, err := decodeEntry(resp.Kvs[0])
		if err != nil {
			return 0, err
		}
		if entry.At.Wall.Before(since) {
			from = s.c.endOf(resp.Kvs[0])
		} else {
			to = middle
		}
	}
	return from, nil
}
