package etcd

import (
	"context"
	"errors"
	"fmt"
	"path"
	"syscall"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ftplockd/ftplockd/internal/lock"
)

var (
	// errName is returned for a name that no lock can have.
	errName = errors.New("not the absolute, clean path of a lock")
	// errFull is what a change is refused with while etcd's database has reached its quota.
	errFull = fmt.Errorf("etcd has no space left: %w", syscall.ENOSPC)
)

// write is one change of etcd, made by one transaction. It is made if and only if its history line is there.
type write struct {
	name   lock.Name
	cause  lock.Cause
	when   []clientv3.Cmp // beside the fence
	then   []clientv3.Op  // beside the history line
	value  string         // of that
	offset int64          // and its place
}

// isLine reports whether what stands in the place of the write's line is that line. Another server that has taken over begins where
// the last line that was written ends, so it may have put its own there.
func (w *write) isLine(kv *mvccpb.KeyValue) bool { return kv != nil && string(kv.Value) == w.value }

// outcome is what a try to make a write, or to settle it, has come to.
type outcome uint8

const (
	unknown    outcome = iota // etcd has not told: it may have been made, or be made later
	made                      // and lasts
	refused                   // by etcd; it is not made and will not be
	outdated                  // the fence has moved; it is not made and will not be
	conflicted                // the record is another one; it is not made and will not be
	over                      // so is the term; it is not made and will not be
)

// answer is what etcd has told.
type answer struct {
	outcome  outcome
	err      error            // of refused and unknown: what etcd said
	revision int64            // of made: etcd's revision of it; otherwise of the answer
	lock     *mvccpb.KeyValue // the lock's key as it is, where it was read; nil: there is none
}

// Commit implements [lock.Store]. It is one transaction: if the fence is where this server knows it to be, and the lock's key is at the revision of
// change.If, then the key is put, or deleted, and so is the history line. That ctx ends once it is sent changes nothing: a client that hangs
// up makes no unknown outcome.
//
// Besides the errors that lock.Store names it returns a *lock.SuspendedError, and nothing was changed, if etcd refuses, or while an
// earlier change is not settled; one that matches ErrDeposed, too, if another server has taken over; and one that matches
// syscall.ENOSPC if etcd has no space.
func (s *Store) Commit(ctx context.Context, change lock.Change) (lock.Token, error) {
	if path.Clean(string(change.Name)) != string(change.Name) || change.Name.Depth() == 0 || change.Name[0] != '/' {
		return 0, fmt.Errorf("%s: %w", change.Name, errName)
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	key := s.c.keys.lock(change.Name)
	op := clientv3.OpDelete(key)
	if len(change.Holds) > 0 {
		op = clientv3.OpPut(key, encode(lockValue{Base: s.base, Holds: holdValues(change.Holds)}))
	}
	token, err := s.write(ctx, &write{
		name: change.Name, cause: change.Cause,
		when: []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", s.modRevision(change.If))},
		then: []clientv3.Op{op},
		value: encodeEntry(lock.Entry{
			Cause: change.Cause, Name: change.Name, At: s.c.o.Clock.Now(), By: change.By, Note: change.Note, Holds: change.Holds,
		}, s.base),
	})
	if errors.Is(err, errFull) && len(change.Holds) == 0 {
		err = fmt.Errorf("%w: %w", lock.ErrUnrecorded, err)
	}
	return token, err
}

// modRevision is etcd's of a record at that revision; of one that no key can have it is -1.
func (s *Store) modRevision(revision lock.Token) int64 {
	switch {
	case revision == 0:
		return 0
	case revision <= s.base:
		return -1
	}
	return int64(revision - s.base)
}

// Published implements [lock.Publications]: a line of the history of its own, which no record changes by.
func (s *Store) Published(ctx context.Context, p lock.Publication) error {
	if p.Lock == "" || p.Token == 0 || p.File == "" {
		return fmt.Errorf("%s: a publication without a file, a lock and a token", p.File)
	}
	_, err := s.write(ctx, &write{name: p.Lock, cause: lock.CausePublish, value: encodeEntry(lock.Entry{
		Cause: lock.CausePublish, Name: p.Lock, Token: p.Token, At: s.c.o.Clock.Now(), By: p.By, Note: p.Note,
		File: p.File, Bytes: p.Bytes, SHA256: p.SHA256,
	}, s.base)})
	return err
}

// retryAfter is how long it waits before it asks again what etcd could not do now.
const retryAfter = 20 * time.Millisecond

// write makes a write, or finds out that it is not made. It tries again for twice the request timeout where that is sure.
func (s *Store) write(ctx context.Context, w *write) (lock.Token, error) {
	if err := s.check(); err != nil {
		return 0, err
	}
	s.place(w)
	defer s.placed(w)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*s.c.o.RequestTimeout)
	defer cancel()
	for {
		a := s.try(ctx, w)
		if a.outcome == unknown {
			a = s.settleInTime(ctx, w, a)
		}
		switch a.outcome {
		case made:
			return s.base + lock.Token(a.revision), nil
		case conflicted:
			record, err := s.record(w.name, a.lock)
			if err == nil {
				err = &lock.ConflictError{Record: record}
			}
			return 0, err
		case over:
			return 0, s.depose("its election key is gone")
		case unknown:
			if w.cause != lock.CausePublish { // it does not matter what became of that
				s.leave(w)
			}
			return 0, fmt.Errorf("%s: %w: etcd: %w", w.name, lock.ErrUncertain, plain(a.err))
		case refused:
			if errors.Is(a.err, errFull) {
				return 0, a.err
			}
			if !transient(a.err) || !pause(ctx, retryAfter) {
				return 0, fmt.Errorf("%w: %w", &lock.SuspendedError{Reason: "etcd refuses changes: " + a.err.Error()}, a.err)
			}
		case outdated:
			if ctx.Err() != nil {
				return 0, &lock.SuspendedError{Reason: "etcd does not answer in time"}
			}
		}
	}
}

// try sends the transaction once.
func (s *Store) try(ctx context.Context, w *write) answer {
	fence := s.fenceNow()
	key, line := s.c.keys.lock(w.name), s.c.keys.line(w.offset)
	var resp *clientv3.TxnResponse
	err := s.c.members.once(ctx, func(ctx context.Context, client *clientv3.Client) (err error) {
		resp, err = client.Txn(ctx).
			If(append([]clientv3.Cmp{s.fenced(fence)}, w.when...)...).
			Then(append([]clientv3.Op{clientv3.OpPut(line, w.value)}, w.then...)...).
			Else(clientv3.OpGet(s.key), clientv3.OpGet(line), clientv3.OpGet(key), s.c.getLine(clientv3.SortAscend)).
			Commit()
		return err
	})
	switch {
	case errors.Is(err, rpctypes.ErrNoSpace):
		return s.afterNoSpace(ctx, w)
	case isRefusal(err):
		return answer{outcome: refused, err: err}
	case err != nil:
		return answer{outcome: unknown, err: err}
	case resp.Succeeded:
		return answer{outcome: made, revision: resp.Header.Revision}
	}
	leader, twice := one(resp, 0), one(resp, 1)
	switch {
	case w.isLine(twice): // the library has sent it again
		return answer{outcome: made, revision: twice.ModRevision}
	case leader.GetCreateRevision() != s.create && s.mayBeSwept(w, one(resp, 3)):
		return answer{outcome: unknown, err: errSwept}
	case leader.GetCreateRevision() != s.create:
		return answer{outcome: over}
	case s.moved(leader.ModRevision), leader.ModRevision != fence:
		return answer{outcome: outdated}
	}
	return answer{outcome: conflicted, lock: one(resp, 2)}
}

// isRefusal reports whether an error says for certain that the transaction is not made. All others are settled.
func isRefusal(err error) bool {
	return transient(err) || errors.Is(err, rpctypes.ErrRequestTooLarge) || errors.Is(err, rpctypes.ErrPermissionDenied)
}

// transient reports whether a refusal may be another answer soon, or by another member.
func transient(err error) bool {
	return errors.Is(err, rpctypes.ErrNoLeader) || errors.Is(err, rpctypes.ErrTooManyRequests)
}

// afterNoSpace finds out whether the write was made: the one that reaches the quota is made, and refused all the same. As etcd has answered
// it is not under way any more, so to look is enough.
func (s *Store) afterNoSpace(ctx context.Context, w *write) answer {
	resp, err := s.c.members.get(ctx, s.c.keys.line(w.offset))
	switch {
	case err != nil:
		return answer{outcome: unknown, err: err}
	case len(resp.Kvs) > 0 && w.isLine(resp.Kvs[0]):
		return answer{outcome: made, revision: resp.Kvs[0].ModRevision}
	}
	s.setFull(true)
	return answer{outcome: refused, err: errFull}
}
