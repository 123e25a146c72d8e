package etcd

import (
	"context"
	"errors"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// A transaction of which etcd has not told may have been made, or be under way and made at any later time: even after its lock was
// granted and released again, which its own comparison does not see. So the fence is moved before anything else is believed:
// this server puts its election key again, and every transaction that was sent before then fails. In the same step it reads the history line.

// settle tries once to find out what became of a write. Afterwards it is made, or it never will be.
func (s *Store) settle(ctx context.Context, w *write) answer {
	read := []clientv3.Op{clientv3.OpGet(s.c.keys.line(w.offset)), clientv3.OpGet(s.c.keys.lock(w.name))}
	var resp *clientv3.TxnResponse
	err := s.c.members.once(ctx, func(ctx context.Context, client *clientv3.Client) (err error) {
		resp, err = client.Txn(ctx).If(s.mine()).
			Then(append(read, clientv3.OpPut(s.key, s.value, clientv3.WithLease(s.lease)))...).
			Else(append(read, s.c.getLine(clientv3.SortAscend))...).
			Commit()
		return err
	})
	if err != nil {
		return answer{outcome: unknown, err: err}
	}
	a := answer{outcome: over, revision: resp.Header.Revision, lock: one(resp, 1)}
	line := one(resp, 0)
	switch {
	case w.isLine(line):
		a.outcome, a.revision = made, line.ModRevision
	case !resp.Succeeded && s.mayBeSwept(w, one(resp, 2)):
		return answer{outcome: unknown, err: errSwept}
	case resp.Succeeded:
		a.outcome = outdated
	}
	if resp.Succeeded {
		s.moved(resp.Header.Revision)
	}
	return a
}

// errSwept says that a later server may have removed the line of a write.
var errSwept = errors.New("another server has taken over, and the history does not go back as far")

// mayBeSwept reports whether a later server may have removed the line of a write; first is the first that there is.
func (s *Store) mayBeSwept(w *write, first *mvccpb.KeyValue) bool {
	if first == nil {
		return w.offset > 0
	}
	return s.c.offsetOf(first) > w.offset
}

// settleInTime settles a write within the request timeout, with several members if it must be. If it cannot be done it returns why, the answer so far.
func (s *Store) settleInTime(ctx context.Context, w *write, why answer) answer {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.c.o.RequestTimeout)
	defer cancel()
	for {
		each, stop := context.WithTimeout(ctx, s.c.o.RequestTimeout/2)
		a := s.settle(each, w)
		stop()
		if a.outcome != unknown {
			return a
		}
		if !pause(ctx, retryAfter) {
			return why
		}
	}
}

// leave remembers a write that is not settled. Until it is, nothing else is changed.
func (s *Store) leave(w *write) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsettled = append(s.unsettled, w)
}

// unsettledOf returns those of a name; "": all.
func (s *Store) unsettledOf(name lock.Name) (all []*write) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.unsettled {
		if name == "" || w.name == name {
			all = append(all, w)
		}
	}
	return all
}

// resolve tries to settle a write that was left, and tells every Watch what has become of it. It reports whether it is settled.
func (s *Store) resolve(ctx context.Context, w *write) bool {
	a := s.settle(ctx, w)
	switch a.outcome {
	case unknown:
		return false
	case over:
		_ = s.depose("its election key is gone")
	}
	record, err := s.record(w.name, a.lock)
	if err != nil {
		return false
	}
	event := lock.Event{Record: record, Cause: w.cause}
	if a.lock == nil {
		event.Record.Revision = s.base + lock.Token(a.revision)
	}
	if a.outcome != made {
		event.Cause = lock.CauseUndeliver // a hold that the table may have taken for granted was never there
	}
	if s.settled(w, event) {
		s.c.o.Log.Info("it is known now what became of a change", "lock", w.name, "change", w.cause, "made", a.outcome == made)
	}
	return true
}

// settled takes a write off the list and tells every Watch, unless somebody else was faster.
func (s *Store) settled(w *write, event lock.Event) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.unsettled, w)
	if i < 0 {
		return false
	}
	s.unsettled = slices.Delete(s.unsettled, i, i+1)
	delete(s.pending, w)
	s.watchers.Tell(event)
	return true
}
