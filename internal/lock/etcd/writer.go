package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// etcd may apply a transaction without an answer at any later time. So the writer first moves the fence: it puts its election key again,
// and every transaction that it sent before fails from then on. Then it sends the same batch again. A batch puts and deletes
// keys of its own tokens, so applying it twice in a row has the same effect.

// Bounds of a batch. etcd takes 128 operations and 1.5 MiB in a transaction, and the writer adds up to four operations.
const (
	batchOps   = 96
	batchBytes = 256 << 10
)

// batch is the records of one transaction. Each key occurs once.
type batch struct {
	end      lock.Position // of its last record
	ops      []clientv3.Op
	keys     map[string]struct{} // of ops
	bytes    int
	chunk    []byte        // its entries of the history
	inFlight bool          // it is under way, so nothing is added to it
	upkeep   bool          // the beat and the history are written with it
	tokens   lock.Token    // tokens up to this one are reserved with it; 0: none
	done     chan struct{} // closed when it is committed
}

func newBatch(end lock.Position) *batch {
	return &batch{end: end, keys: make(map[string]struct{}), done: make(chan struct{})}
}

// accepts reports whether a record with these changes can be added.
func (b *batch) accepts(changes ...clientv3.Op) bool {
	for _, op := range changes {
		if _, ok := b.keys[string(op.KeyBytes())]; ok {
			return false
		}
	}
	return !b.inFlight && len(b.ops)+len(changes) <= batchOps && b.bytes+len(b.chunk) <= batchBytes
}

// add adds the changes of a record.
func (b *batch) add(changes ...clientv3.Op) {
	for _, op := range changes {
		b.keys[string(op.KeyBytes())] = struct{}{}
		b.ops = append(b.ops, op)
		b.bytes += len(op.KeyBytes()) + len(op.ValueBytes())
	}
}

// writer is the part of a Log that only its goroutine changes after the take-over, except that Sweep stores first.
type writer struct {
	fence       int64        // ModRevision of the election key
	value       string       // of the election key
	beaten      time.Time    // when the last beat was made
	beatServing bool         // the last beat reports that this server serves
	chunk       []byte       // entries of the history that are not written yet
	firstOffset atomic.Int64 // offset of the first chunk of the history
	nextOffset  atomic.Int64 // offset of the next chunk
}

const (
	// historyChunk is the size of a chunk of the history that does not wait for the next beat.
	historyChunk = 32 << 10
	// beatFresh is the age below which a beat is not written again.
	beatFresh = 200 * time.Millisecond
	// retryAfter is the time after which the writer repeats a failed request.
	retryAfter = 50 * time.Millisecond
)

// write sends the batches until the term ends.
func (l *Log) write() {
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		if b := l.nextBatch(); b != nil {
			if !l.send(b) {
				return
			}
			continue
		}
		next.Reset(beatEvery - time.Since(l.beaten))
		select {
		case <-l.wake:
		case <-next.C:
		case <-l.term.Done():
			return
		}
	}
}

// nextBatch returns the first batch, or a new one for the beat, the history or a block of tokens; nil: there is nothing to write.
func (l *Log) nextBatch() *batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	due := time.Since(l.beaten) >= beatEvery || len(l.chunk) > historyChunk
	if len(l.queue) == 0 && !due && l.wanted <= l.reserved {
		return nil
	}
	if len(l.queue) == 0 {
		l.queue = append(l.queue, newBatch(l.position))
	}
	b := l.queue[0]
	b.inFlight, b.upkeep = true, b.upkeep || due
	if l.wanted > l.reserved {
		b.tokens = l.wanted
	}
	return b
}

// send sends a batch until etcd has applied it. It returns false if the term ends before.
func (l *Log) send(b *batch) bool {
	ops := b.ops
	if b.tokens > 0 {
		ops = append(ops, clientv3.OpPut(l.c.keys.tokens(), decimal(uint64(b.tokens))))
	}
	l.chunk = append(l.chunk, b.chunk...)
	if b.upkeep && len(l.chunk) > 0 {
		ops = append(ops, clientv3.OpPut(l.c.keys.chunk(l.nextOffset.Load()), string(l.chunk)))
	}
	serving := l.serving.Load()
	beats := b.upkeep && (time.Since(l.beaten) >= beatFresh || serving != l.beatServing)
	if beats && l.c.value() != l.value && !l.moveFence() { // the settings have changed, and the beat follows the new ones
		return false
	}
	if beats {
		l.beaten, l.beatServing = time.Now(), serving
		ops = append(ops, clientv3.OpPut(l.c.keys.beat(), l.beat()), clientv3.OpGet(l.c.keys.stepDown()))
	}
	if len(ops) > 0 && !l.commit(b, ops, beats) {
		return false
	}
	if b.upkeep && len(l.chunk) > 0 {
		l.nextOffset.Add(int64(len(l.chunk)))
		l.chunk = l.chunk[:0]
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = l.queue[1:]
	l.committed = b.end
	l.reserved = max(l.reserved, b.tokens)
	close(b.done)
	return true
}

// commit sends the operations of a batch until etcd has applied them, all at once. It returns false if the term ends before. With beats, the
// last operation reads the key of step-down.
func (l *Log) commit(b *batch, ops []clientv3.Op, beats bool) bool {
	for l.term.Err() == nil {
		resp, err := l.tryTransaction(l.fenced(), ops...)
		switch {
		case err == nil && resp.Succeeded:
			l.setTrouble(nil)
			if beats && string(firstKeyRead(resp, len(ops)-1).GetValue()) == l.key {
				l.endRun(fmt.Errorf("%w: step-down requested", ErrHandOver))
			}
			return true
		case err == nil && firstKeyRead(resp, 0).GetCreateRevision() != l.createRevision:
			l.depose("its election key is gone")
		case err == nil: // an earlier move of the fence was late
			l.fence = firstKeyRead(resp, 0).ModRevision
		case isRefusal(err):
			l.suspendAndPause(err)
		default:
			l.c.o.Log.Info("etcd has not confirmed a change, so it is sent again", "err", withoutGRPC(err))
			if len(b.ops) > 0 {
				l.setTrouble(errUnconfirmed)
			}
			if !l.moveFence() {
				return false
			}
		}
	}
	return false
}

// moveFence puts the election key again, so that etcd does not apply anything that was sent before. It returns false if the term ends first.
func (l *Log) moveFence() bool {
	for l.term.Err() == nil {
		value := l.c.value()
		resp, err := l.tryTransaction(l.keyUnchanged(), l.putKey(value))
		switch {
		case err == nil && resp.Succeeded:
			l.fence, l.value = resp.Header.Revision, value
			return true
		case err == nil:
			l.depose("its election key is gone")
		case isLeaseNotFound(err):
			l.depose("its lease is over")
		case isRefusal(err):
			l.suspendAndPause(err)
		default:
			l.setTrouble(errUnconfirmed)
			pause(l.term, retryAfter)
		}
	}
	return false
}

// tryTransaction sends a transaction to one member, once. If the condition is not true, it reads the election key.
func (l *Log) tryTransaction(condition clientv3.Cmp, ops ...clientv3.Op) (resp *clientv3.TxnResponse, err error) {
	err = l.c.members.sendToOne(l.term, func(ctx context.Context, client *clientv3.Client) error {
		resp, err = client.Txn(ctx).If(condition).Then(ops...).Else(clientv3.OpGet(l.key)).Commit()
		return err
	})
	return resp, err
}

// putKey puts the election key.
func (l *Log) putKey(value string) clientv3.Op {
	return clientv3.OpPut(l.key, value, clientv3.WithLease(l.lease))
}

// fenced is true while this server is the active one, and the fence has not moved.
func (l *Log) fenced() clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(l.key), "=", l.fence)
}

// keyUnchanged is true while this server has the same election key.
func (l *Log) keyUnchanged() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(l.key), "=", l.createRevision)
}

// errUnconfirmed is the trouble while the outcome of a transaction is unknown.
var errUnconfirmed error = &lock.SuspendedError{Reason: "etcd has not confirmed an earlier change yet"}

// suspendAndPause suspends the server because etcd refused a transaction, and waits before the next attempt.
func (l *Log) suspendAndPause(err error) {
	var trouble error = &lock.SuspendedError{Reason: Reason(err)}
	if errors.Is(err, rpctypes.ErrNoSpace) {
		trouble = fmt.Errorf("%w: %w", trouble, lock.ErrFull)
	}
	l.setTrouble(trouble)
	pause(l.term, retryAfter)
}
