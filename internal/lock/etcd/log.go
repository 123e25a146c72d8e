package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// Log is one term of a server as the active one: it is of no use after that. [Cluster.Campaign] returns it. It is for use by several
// goroutines. Close must be called.
//
// One goroutine, the writer, sends the batches, one at a time. No mutex is held during a request.
type Log struct {
	c      *Cluster
	lease  clientv3.LeaseID
	key    string // this server's election key
	create int64  // its CreateRevision
	value  string
	epoch  uint32
	before lock.Token    // no earlier term gave a larger one
	shift  time.Duration // see timeline

	deadline atomic.Int64  // the lease surely lasts until then, in time since boot
	beaten   atomic.Int64  // when the last beat was written, in nanoseconds since 1970
	over     chan struct{} // closed when Run must return
	term     context.Context
	end      context.CancelFunc // ends the term, after which nothing can be written
	writing  sync.WaitGroup
	writer

	mu        sync.Mutex
	state     state
	why       error         // that Run returns
	trouble   string        // of the batch under way; "": none
	refused   string        // why etcd refuses the beat; "": it does not
	suspended time.Time     // since when Valid returns an error, as the beat has seen it; zero: it does not
	full      bool          // etcd has no space
	changed   chan struct{} // closed when Room or the state of etcd has changed
	position  lock.Position // of the last record
	committed lock.Position
	queue     []*batch // that are not committed; the first may be under way
	last      lock.Token
	reserved  lock.Token    // tokens up to this one may be given
	wanted    lock.Token    // and are to be reserved
	work      chan struct{} // holds at most one message: the writer may have something to do
}

var (
	_ lock.Log     = (*Log)(nil)
	_ lock.History = (*Log)(nil)
)

// state is the stage of a term. It leaves active once.
type state uint8

const (
	active   state = iota
	stepping       // it hands over
	deposed        // another server has taken over, or may
	resigned       // it has handed over, or was closed
)

const (
	// tokenBlock is how many tokens one write reserves. The next block is reserved when half of one is used.
	tokenBlock = 10_000
	// readyAge is the age of a beat that Ready does without a new one.
	readyAge = 200 * time.Millisecond
	// waitBound is how long Wait waits at most.
	waitBound = 10 * time.Second
)

func newLog(c *Cluster, lease clientv3.LeaseID, create int64) *Log {
	l := &Log{
		c: c, lease: lease, key: c.keys.server(lease), create: create, value: encode(c.o.Self),
		over: make(chan struct{}), changed: make(chan struct{}), work: make(chan struct{}, 1),
	}
	l.term, l.end = context.WithCancel(context.Background())
	return l
}

// Generation returns the epoch: the number of this term, larger than all before.
func (l *Log) Generation() uint32 { return l.epoch }

// Append implements [lock.Log].
func (l *Log) Append(records []lock.Record) lock.Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range records {
		l.addLocked(&records[i])
	}
	signal(l.work)
	return l.position
}

// addLocked adds a record to the last batch.
func (l *Log) addLocked(r *lock.Record) {
	h := &r.Hold
	keys := [2]string{l.c.keys.lock(h.Name, h.Token), l.c.keys.lock(h.Name, r.Replaces)}
	changes := keys[:1]
	switch {
	case r.Kind == lock.Published:
		changes = nil
	case r.Replaces != 0:
		changes = keys[:]
	}
	b := l.openLocked(changes)
	l.position++
	b.end = l.position
	switch r.Kind {
	case lock.Granted, lock.Changed:
		b.add(keys[0], clientv3.OpPut(keys[0], l.encode(*h)))
		if r.Replaces != 0 {
			b.add(keys[1], clientv3.OpDelete(keys[1]))
		}
		l.last = max(l.last, h.Token)
	case lock.Ended:
		b.add(keys[0], clientv3.OpDelete(keys[0]))
	case lock.Published:
		b.history = true
	}
	if r.Cause != lock.CauseDirectory {
		b.chunk = appendEntry(b.chunk, entryOf(r))
	}
}

// encode returns the value of a hold, with its times on the timeline.
func (l *Log) encode(h lock.Hold) string {
	h.Acquired.Boot, h.Renewed.Boot = h.Acquired.Boot+l.shift, h.Renewed.Boot+l.shift
	return encodeHold(h)
}

// openLocked returns the last batch if a record that changes these keys can be added to it, else a new one.
func (l *Log) openLocked(keys []string) *batch {
	if n := len(l.queue); n > 0 && l.queue[n-1].takes(keys) {
		return l.queue[n-1]
	}
	b := newBatch(l.position)
	l.queue = append(l.queue, b)
	return b
}

// flush adds the history to the last batch, and waits for it.
func (l *Log) flush(ctx context.Context) error {
	l.mu.Lock()
	b := l.openLocked(nil)
	b.history = true
	l.mu.Unlock()
	signal(l.work)
	select {
	case <-b.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("etcd: writing the history: %w", ctx.Err())
	case <-l.term.Done():
		return l.check()
	}
}

// Wait implements [lock.Log]. It waits for ten seconds at most.
func (l *Log) Wait(ctx context.Context, end lock.Position, _ bool) error {
	b, changed, full := l.batchOf(end)
	if b == nil {
		return nil
	}
	bound := time.NewTimer(waitBound)
	defer bound.Stop()
	var err error
	for err == nil {
		if full {
			err = lock.ErrFull
			break
		}
		select {
		case <-b.done:
			return nil
		case <-changed:
			_, changed, full = l.batchOf(end)
		case <-ctx.Done():
			err = ctx.Err()
		case <-l.term.Done():
			err = errors.New("the term of this server is over")
		case <-bound.C:
			err = errors.New("etcd does not answer in time")
		}
	}
	select {
	case <-b.done:
		return nil
	default:
		return fmt.Errorf("%w: %w", lock.ErrUncertain, err)
	}
}

// batchOf returns the batch that contains a position, nil if it is committed; what is closed when the state of etcd changes; and
// whether etcd is full.
func (l *Log) batchOf(end lock.Position) (b *batch, changed <-chan struct{}, full bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if end > l.committed {
		for _, b = range l.queue {
			if b.end >= end {
				break
			}
		}
	}
	return b, l.changed, l.full
}

// Room implements [lock.Log].
func (l *Log) Room(token lock.Token) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.roomLocked(token)
}

func (l *Log) roomLocked(token lock.Token) bool {
	if token > l.last+tokenBlock {
		return false
	}
	if token+tokenBlock/2 > l.reserved && l.wanted <= l.reserved {
		l.wanted = max(l.reserved, l.last) + tokenBlock
		signal(l.work)
	}
	return token <= l.reserved && !l.full
}

// MakeRoom implements [lock.Log].
func (l *Log) MakeRoom(ctx context.Context, token lock.Token) error {
	for {
		l.mu.Lock()
		room, full, changed := l.roomLocked(token), l.full, l.changed
		l.mu.Unlock()
		if room {
			return nil
		}
		if full {
			return lock.ErrFull
		}
		if err := l.Valid(); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-l.term.Done():
		}
	}
}

// changedLocked wakes the callers of Wait and MakeRoom.
func (l *Log) changedLocked() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// signal wakes the goroutine that reads the channel.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
