package etcd

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// A transaction without an answer may have been applied, or be applied at any later time. So before anything else is sent the fence is
// moved: this server puts its election key again, and every transaction that was sent before then fails. After that the same batch is
// sent again. It puts and removes keys of its own tokens, so to apply it twice in a row is the same as once.

// Bounds of a batch: etcd takes 128 operations and 1.5 MiB in a transaction, and the writer adds two operations.
const (
	batchOps   = 96
	batchBytes = 256 << 10
)

// batch is records that one transaction writes. Each key occurs once.
type batch struct {
	end     lock.Position // of its last record
	ops     []clientv3.Op
	keys    map[string]struct{} // of ops
	bytes   int
	taken   bool          // it is under way: nothing is added to it any more
	chunk   []byte        // the entries of the history
	history bool          // the history is written with it
	done    chan struct{} // closed when it is committed
}

func newBatch(end lock.Position) *batch {
	return &batch{end: end, keys: make(map[string]struct{}), done: make(chan struct{})}
}

// takes reports whether a record that changes these keys can be added.
func (b *batch) takes(keys []string) bool {
	for _, key := range keys {
		if _, ok := b.keys[key]; ok {
			return false
		}
	}
	return !b.taken && len(b.ops)+len(keys) <= batchOps && b.bytes+len(b.chunk) <= batchBytes
}

// add adds an operation.
func (b *batch) add(key string, o clientv3.Op) {
	b.keys[key] = struct{}{}
	b.ops = append(b.ops, o)
	b.bytes += len(key) + len(o.ValueBytes())
}

// writer is the part of a Log that its goroutine uses.
type writer struct {
	fence int64        // ModRevision of the election key
	chunk []byte       // entries of batches that are committed, not written yet
	since time.Time    // when the oldest of them was committed
	first atomic.Int64 // where the history begins
	next  atomic.Int64 // where its next chunk will
}

const (
	// historyDelay is how long the writer collects entries of the history.
	historyDelay = 500 * time.Millisecond
	// historyChunk is the size of a chunk of them that is written earlier.
	historyChunk = 32 << 10
	// retryAfter is how long the writer waits before it repeats a request that etcd could not do.
	retryAfter = 20 * time.Millisecond
	// refusedAfter is the same for one that etcd refuses for a lasting reason.
	refusedAfter = time.Second
)

// write sends the batches until the term ends.
func (l *Log) write() {
	timer := time.NewTimer(historyDelay)
	defer timer.Stop()
	for {
		b, tokens := l.take()
		late := len(l.chunk) > historyChunk || len(l.chunk) > 0 && time.Since(l.since) >= historyDelay
		if b == nil && tokens == 0 && !late {
			timer.Reset(historyDelay)
			select {
			case <-l.work:
			case <-timer.C:
			case <-l.term.Done():
				return
			}
			continue
		}
		if b == nil {
			b = newBatch(0)
		}
		if !l.send(l.term, l.operations(b, tokens, b.history || late)) {
			return
		}
		l.wrote(b, tokens, b.history || late)
	}
}

// take returns the first batch, to which nothing is added any more, and up to which token a block is to be reserved; nil and 0: there
// is nothing to do.
func (l *Log) take() (b *batch, tokens lock.Token) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wanted > l.reserved {
		tokens = l.wanted
	}
	if len(l.queue) == 0 {
		return nil, tokens
	}
	b = l.queue[0]
	b.taken = true
	return b, tokens
}

// operations returns those of a batch and of the writer.
func (l *Log) operations(b *batch, tokens lock.Token, history bool) []clientv3.Op {
	ops := b.ops
	if tokens > 0 {
		ops = append(ops, clientv3.OpPut(l.c.keys.tokens(), decimal(uint64(tokens))))
	}
	if history {
		if l.chunk = append(l.chunk, b.chunk...); len(l.chunk) > 0 {
			ops = append(ops, clientv3.OpPut(l.c.keys.chunk(l.next.Load()), chunkVersion+string(l.chunk)))
		}
	}
	return ops
}

// wrote takes note of a batch that is committed.
func (l *Log) wrote(b *batch, tokens lock.Token, history bool) {
	if history && len(l.chunk) > 0 {
		l.next.Add(int64(len(chunkVersion) + len(l.chunk)))
		l.chunk = l.chunk[:0]
	} else if !history {
		if len(l.chunk) == 0 {
			l.since = time.Now()
		}
		l.chunk = append(l.chunk, b.chunk...)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) > 0 && l.queue[0] == b {
		l.queue = l.queue[1:]
		l.committed = b.end
	}
	close(b.done)
	if tokens > 0 {
		l.reserved = tokens
		l.changedLocked()
	}
}

// answer is the result of sending a transaction.
type answer uint8

const (
	made     answer = iota
	unknown         // it may have been applied, or be applied later
	outdated        // the fence has moved; it is not applied
	refused         // by etcd for now; it is not applied
	over            // the term is; it is not applied
)

// send has etcd apply operations, and repeats them until they are. It returns false if the term ends before.
func (l *Log) send(ctx context.Context, ops []clientv3.Op) bool {
	if len(ops) == 0 {
		return true
	}
	for began := time.Now(); ctx.Err() == nil; {
		switch a, err := l.try(ctx, ops); a {
		case made:
			l.set("", false)
			return true
		case unknown:
			l.set("etcd has not confirmed an earlier change yet", false)
			l.c.o.Log.Info("etcd has not confirmed a change, so it is sent again", "err", plain(err))
			if !l.moveFence(ctx) {
				return false
			}
		case refused:
			l.refusal(ctx, err, began)
		case over:
			_ = l.depose("its election key is gone")
		}
	}
	return false
}

// try sends a transaction once.
func (l *Log) try(ctx context.Context, ops []clientv3.Op) (answer, error) {
	var resp *clientv3.TxnResponse
	err := l.c.members.once(ctx, func(ctx context.Context, client *clientv3.Client) (err error) {
		resp, err = client.Txn(ctx).If(l.fenced()).Then(ops...).Else(clientv3.OpGet(l.key)).Commit()
		return err
	})
	switch {
	case isRefusal(err):
		return refused, err
	case err != nil:
		return unknown, err
	case resp.Succeeded:
		return made, nil
	}
	leader := one(resp, 0)
	if leader.GetCreateRevision() != l.create {
		return over, nil
	}
	l.fence = leader.ModRevision // an earlier move of the fence was late
	return outdated, nil
}

// moveFence puts the election key again, so that nothing that was sent before is applied any more. It returns false if the term ends before.
func (l *Log) moveFence(ctx context.Context) bool {
	for began := time.Now(); ctx.Err() == nil; {
		var resp *clientv3.TxnResponse
		err := l.c.members.once(ctx, func(ctx context.Context, client *clientv3.Client) (err error) {
			resp, err = client.Txn(ctx).If(l.mine()).Then(clientv3.OpPut(l.key, l.value, clientv3.WithLease(l.lease))).Commit()
			return err
		})
		switch {
		case err == nil && resp.Succeeded:
			l.fence = resp.Header.Revision
			return true
		case err == nil:
			_ = l.depose("its election key is gone")
		case isLeaseNotFound(err):
			_ = l.depose("its lease is over")
		case isRefusal(err):
			l.refusal(ctx, err, began)
		default:
			pause(ctx, retryAfter)
		}
	}
	return false
}

// fenced is true while this server is the active one, and the fence has not moved.
func (l *Log) fenced() clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(l.key), "=", l.fence)
}

// mine is true while this server is the active one.
func (l *Log) mine() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(l.key), "=", l.create)
}

// isRefusal reports whether an error proves that the transaction has ended. One that reaches etcd's quota may have
// been applied all the same, which does no harm: it is sent again as it is.
func isRefusal(err error) bool {
	return transient(err) || errors.Is(err, rpctypes.ErrNoSpace) || errors.Is(err, rpctypes.ErrRequestTooLarge) ||
		errors.Is(err, rpctypes.ErrPermissionDenied)
}

// transient reports whether a refusal may be another answer soon, or by another member.
func transient(err error) bool {
	return errors.Is(err, rpctypes.ErrNoLeader) || errors.Is(err, rpctypes.ErrTooManyRequests)
}

// refusal takes note of a refusal, and waits. A short one, such as while etcd elects a leader, suspends nothing.
func (l *Log) refusal(ctx context.Context, err error, began time.Time) {
	switch {
	case errors.Is(err, rpctypes.ErrNoSpace):
		l.set(errNoSpace, true)
	case !transient(err) || time.Since(began) > 2*l.c.o.RequestTimeout:
		l.set(Reason(err), false)
	}
	if transient(err) {
		pause(ctx, retryAfter)
	} else {
		pause(ctx, refusedAfter)
	}
}

// errNoSpace is the trouble while etcd's database has reached its quota.
const errNoSpace = "etcd has no space left"
