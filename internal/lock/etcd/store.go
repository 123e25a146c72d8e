package etcd

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// Store is one term of a server as the active one: it is of no use after that. [Cluster.Campaign] returns it. It is for use by several goroutines.
//
// The lock order: there is none, in the whole package. No mutex is taken while another one is held, and no request is made, but for what a
// new client of a member asks, see member.
type Store struct {
	c      *Cluster
	lease  clientv3.LeaseID
	key    string // this server's election key
	create int64  // its CreateRevision
	value  string // and its value
	epoch  uint32
	base   lock.Token // what is added to a revision of etcd to make a token

	deadline atomic.Int64  // the lease surely lasts until then, in time since boot
	over     chan struct{} // closed when the state is not active any more
	watchers lock.Watchers

	mu        sync.Mutex
	state     state
	why       error // why it is over
	fence     int64 // ModRevision of the election key
	first     int64 // where the history begins, and where its next line will: see history.go
	next      int64
	pending   map[*write]struct{} // those that are under way, or unsettled
	unsettled []*write            // those of which etcd has not told in time
	full      bool                // etcd has said so
}

var (
	_ lock.Store        = (*Store)(nil)
	_ lock.Publications = (*Store)(nil)
)

// state is what becomes of a term. It goes on from active only, and once. An active server is suspended while [Store.Valid] says so.
type state uint8

const (
	active   state = iota
	stepping       // it was asked to hand over
	deposed        // another server has taken over, or may
	resigned       // it has handed over, or was closed
)

// Generation returns the epoch: the number of this term, larger than all before.
func (s *Store) Generation() uint32 { return s.epoch }

// end ends the term, if it goes on.
func (s *Store) end(as state, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == active {
		s.why = why
		close(s.over)
	}
	if s.state == active || s.state == stepping {
		s.state = as
	}
}

// depose ends the term because the election key or its lease is gone. It returns what a change that runs into it says.
func (s *Store) depose(why string) error {
	s.end(deposed, fmt.Errorf("%w: %s", ErrDeposed, why))
	return fmt.Errorf("%w: %w", &lock.SuspendedError{Reason: "another server takes over"}, ErrDeposed)
}

// check says why nothing can be changed now, whatever the lease: the term is over, or something is not settled.
func (s *Store) check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.state == deposed:
		return fmt.Errorf("%w: %w", &lock.SuspendedError{Reason: "another server takes over"}, ErrDeposed)
	case s.state == resigned:
		return lock.ErrClosed
	case len(s.unsettled) > 0:
		return &lock.SuspendedError{Reason: "etcd has not told yet what became of an earlier change"}
	}
	return nil
}

// Ready returns nil if a grant could be recorded, as far as is known without asking etcd. An error says why no lock can be granted.
func (s *Store) Ready() error {
	if err := s.Valid(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.full {
		return errFull
	}
	return nil
}

// Get returns the record of a name, without holds if there is none. It first settles what became of a change of it, and returns an error that
// matches lock.ErrUncertain if that cannot be done now.
func (s *Store) Get(ctx context.Context, name lock.Name) (lock.Record, error) {
	for _, w := range s.unsettledOf(name) {
		if !s.resolve(ctx, w) {
			return lock.Record{}, fmt.Errorf("etcd: %q: %w", name, lock.ErrUncertain)
		}
	}
	resp, err := s.c.members.get(ctx, s.c.keys.lock(name))
	if err != nil {
		return lock.Record{}, fmt.Errorf("etcd: %w", plain(err))
	}
	if len(resp.Kvs) == 0 {
		return lock.Record{Name: name}, nil
	}
	return s.record(name, resp.Kvs[0])
}

// record reads the key of a lock, its moments mapped to this server's time; nil: there is none.
func (s *Store) record(name lock.Name, kv *mvccpb.KeyValue) (lock.Record, error) {
	if kv == nil {
		return lock.Record{Name: name}, nil
	}
	r, err := decodeLock(name, kv, s.base)
	return s.c.localize(r), err
}

// All yields every record with at least one hold, those of one moment, sorted by name.
func (s *Store) All(ctx context.Context) iter.Seq2[lock.Record, error] {
	return func(yield func(lock.Record, error) bool) {
		found, _, err := s.c.readLocks(ctx)
		if err == nil {
			err = s.closed()
		}
		for _, kv := range found {
			if err != nil {
				break
			}
			var record lock.Record
			if record, err = s.record(s.c.keys.nameOf(kv.Key), kv); err == nil {
				err = ctx.Err()
			}
			if err == nil && !yield(record, nil) {
				return
			}
		}
		if err != nil {
			yield(lock.Record{}, err)
		}
	}
}

// pageSize is how many keys are read by one request.
const pageSize = 2000

// readLocks reads all locks at one revision, which it returns. It begins anew if that is compacted meanwhile.
func (c *Cluster) readLocks(ctx context.Context) (all []*mvccpb.KeyValue, revision int64, err error) {
	for range 3 {
		all, revision, err = c.readLocksOnce(ctx)
		if !errors.Is(err, rpctypes.ErrCompacted) {
			break
		}
	}
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("etcd: reading the locks: %w", plain(err))
	}
	return all, revision, err
}

func (c *Cluster) readLocksOnce(ctx context.Context) (all []*mvccpb.KeyValue, revision int64, err error) {
	from, end := c.keys.locks(), clientv3.GetPrefixRangeEnd(c.keys.locks())
	for {
		resp, err := c.members.get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(pageSize), clientv3.WithRev(revision))
		if err != nil {
			return nil, 0, errors.Join(ctx.Err(), err)
		}
		all = append(all, resp.Kvs...)
		if revision == 0 {
			revision = resp.Header.Revision
		}
		if !resp.More {
			return all, revision, nil
		}
		from = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
	}
}

func (s *Store) closed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == resigned {
		return lock.ErrClosed
	}
	return nil
}

// Resign hands over: the election key goes, with its lease. The next server takes over at once. Without it the next one waits for the end of the lease.
func (s *Store) Resign(ctx context.Context) error {
	s.end(resigned, lock.ErrClosed)
	if err := s.c.revoke(ctx, s.lease); err != nil {
		return fmt.Errorf("etcd: handing over: %w", plain(err))
	}
	return nil
}

// Close ends every Watch. It does not hand over.
func (s *Store) Close() error {
	s.end(resigned, lock.ErrClosed)
	s.watchers.Close()
	return nil
}

// Watch yields what became of changes of which etcd has not told in time; nobody else changes locks. It counts from the call, and
// returns when ctx ends or the store is closed.
func (s *Store) Watch(ctx context.Context) iter.Seq[lock.Event] { return s.watchers.Watch(ctx) }
