package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/record"
)

// Log is one term of a server as the active one. [Cluster.Campaign] returns it. It is for use by several goroutines. Close must be called.
//
// One goroutine, the writer, sends the batches, one at a time. No mutex is held during a request.
type Log struct {
	c              *Cluster
	lease          clientv3.LeaseID
	key            string // this server's election key
	createRevision int64  // its CreateRevision
	epoch          uint32
	lastToken      lock.Token    // no earlier term granted a larger one
	shift          time.Duration // see timeline

	began    time.Time       // the time of the take-over
	serving  atomic.Bool     // see Serve
	deadline atomic.Int64    // time since boot until which the lease surely lasts
	runError chan error      // gets the error that Run must return
	term     context.Context // of all changes; its cause is the error of a change after its end
	end      context.CancelCauseFunc
	writing  sync.WaitGroup
	writer

	mu        sync.Mutex
	trouble   error         // why nothing can be changed now; nil: nothing is known against it
	position  lock.Position // of the last record
	committed lock.Position
	queue     []*batch // the batches that are not committed; the first may be under way
	line      []byte   // of the last hold; its memory is used again
	reserved  lock.Token
	wanted    lock.Token    // tokens up to this one are to be reserved
	wake      chan struct{} // holds at most one message: the writer may have something to do
}

var (
	_ lock.Log     = (*Log)(nil)
	_ lock.History = (*Log)(nil)
)

const (
	// tokenBlock is the number of tokens that one write reserves. When half of a block is used, the writer reserves the next one.
	tokenBlock = 10_000
	// waitTimeout is the longest time that a caller waits for a batch.
	waitTimeout = 10 * time.Second
)

func newLog(c *Cluster, lease clientv3.LeaseID, create int64) *Log {
	l := &Log{c: c, lease: lease, key: c.keys.server(lease), createRevision: create, began: c.o.Clock.Now().Wall.UTC(), runError: make(chan error, 1), wake: make(chan struct{}, 1)}
	l.term, l.end = context.WithCancelCause(context.Background())
	return l
}

// Generation returns the epoch: the number of this term, larger than all before.
func (l *Log) Generation() uint32 { return l.epoch }

// Append implements [lock.Log].
func (l *Log) Append(records []lock.Record) lock.Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range records {
		l.addRecordLocked(&records[i])
	}
	l.signal()
	return l.position
}

// addRecordLocked adds a record to the last batch.
func (l *Log) addRecordLocked(r *lock.Record) {
	h := r.Hold
	key := l.c.keys.lock(h.Name, h.Token)
	var changes []clientv3.Op
	switch r.Kind {
	case lock.Granted, lock.Changed:
		h.Acquired.Boot, h.Renewed.Boot = h.Acquired.Boot+l.shift, h.Renewed.Boot+l.shift
		l.line = record.AppendHold(l.line[:0], &h)
		changes = append(changes, clientv3.OpPut(key, string(l.line)))
		if r.Replaces != 0 {
			changes = append(changes, clientv3.OpDelete(l.c.keys.lock(h.Name, r.Replaces)))
		}
	case lock.Ended:
		changes = append(changes, clientv3.OpDelete(key))
	}
	b := l.batchForLocked(changes...)
	b.add(changes...)
	if r.Kind == lock.Published {
		b.upkeep = true // a publication is in etcd before the client's reply
	}
	if record.IsEntry(r) {
		b.chunk = appendEntry(b.chunk, r)
	}
	l.position++
	b.end = l.position
}

// batchForLocked returns the last batch if it accepts a record with these changes, or a new one.
func (l *Log) batchForLocked(changes ...clientv3.Op) *batch {
	if n := len(l.queue); n > 0 && l.queue[n-1].accepts(changes...) {
		return l.queue[n-1]
	}
	b := newBatch(l.position)
	l.queue = append(l.queue, b)
	return b
}

// signal wakes the writer.
func (l *Log) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Wait implements [lock.Log]. It waits for ten seconds at most.
func (l *Log) Wait(ctx context.Context, end lock.Position, _ bool) error {
	l.mu.Lock()
	i := slices.IndexFunc(l.queue, func(b *batch) bool { return b.end >= end })
	if end <= l.committed || i < 0 {
		l.mu.Unlock()
		return nil
	}
	b := l.queue[i]
	l.mu.Unlock()
	if err := l.await(ctx, b); err != nil {
		return fmt.Errorf("%w: %w", lock.ErrUncertain, err)
	}
	return nil
}

// await waits until a batch is committed, for ten seconds at most. The error never matches *lock.SuspendedError, whose reply is that nothing was
// changed: the batch may be applied.
func (l *Log) await(ctx context.Context, b *batch) error {
	bound := time.NewTimer(waitTimeout)
	defer bound.Stop()
	var err error
	select {
	case <-b.done:
	case <-ctx.Done():
		err = ctx.Err()
	case <-l.term.Done():
		err = errors.New("the term of this server is over")
	case <-bound.C:
		if err = errors.New("etcd does not answer in time"); errors.Is(l.check(), lock.ErrFull) {
			err = lock.ErrFull
		}
	}
	select {
	case <-b.done: // at the same time
		return nil
	default:
		return err
	}
}

// Serve publishes that this server serves clients. Until then [Status] reports that it takes over. Serve does not wait for etcd.
func (l *Log) Serve() {
	l.serving.Store(true)
	l.requestBeat()
}

// requestBeat returns the batch with which the writer writes the beat and the history.
func (l *Log) requestBeat() *batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.batchForLocked()
	b.upkeep = true
	l.signal()
	return b
}

// flush has the writer write the beat and the history, after all records so far, and waits for that.
func (l *Log) flush(ctx context.Context) error {
	return l.await(ctx, l.requestBeat())
}

// Room implements [lock.Log]. It also requests the next block of tokens in good time.
func (l *Log) Room(token lock.Token) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if token+tokenBlock/2 > l.reserved && l.wanted <= l.reserved {
		l.wanted = l.reserved + tokenBlock
		l.signal()
	}
	return token <= l.reserved
}

// MakeRoom implements [lock.Log].
func (l *Log) MakeRoom(ctx context.Context, token lock.Token) error {
	for !l.Room(token) {
		if err := l.Valid(); err != nil {
			return err
		}
		if err := l.flush(ctx); err != nil {
			return cmp.Or(l.check(), err)
		}
	}
	return nil
}
