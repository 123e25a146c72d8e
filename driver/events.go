package driver

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/event"
	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// tell publishes an event of the session, and returns it with what it has of the session.
func (c *client) tell(e event.Event) event.Event {
	e.Session, e.Account, e.Remote = sessionText(lock.SessionID(c.id.Load())), c.account.Name, c.conn.IP().String()
	c.server.events.Publish(e)
	return e
}

// tellRefused publishes that a lock was refused.
func (c *client) tellRefused(n lock.Name, err error) {
	_, text, _ := c.explain(err)
	c.tell(event.Event{Kind: event.Refuse, Lock: string(n), Cause: refusedBy(err), Reason: text})
}

// refusedBy is why a lock was refused, as one of a few words.
func refusedBy(err error) string {
	var (
		limit     *lock.LimitError
		tooMany   *lock.TooManyError
		delayed   *lock.DelayedError
		queued    *lock.QueuedError
		protected *lock.ProtectedError
		timeout   *lock.TimeoutError
		later     *lock.SuspendedError
	)
	switch {
	case errors.As(err, &timeout):
		return "timeout"
	case errors.As(err, &later):
		return "suspended"
	case errors.Is(err, errWithdrawn):
		return "withdrawn"
	case errors.As(err, &limit):
		return "limit"
	case errors.As(err, &tooMany):
		return "max-locks"
	case errors.As(err, &delayed):
		return "delayed"
	case errors.As(err, &queued):
		return "queued"
	case errors.As(err, &protected):
		return "protected"
	case errors.Is(err, lock.ErrHeld):
		return "held"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "disk-full"
	}
	return "other"
}

// discardedBy is why an upload was discarded, as one of a few words.
func discardedBy(err error) string {
	var protected *lock.ProtectedError
	var later *lock.SuspendedError
	for _, known := range []struct {
		is   error
		word string
	}{
		{control.ErrAborted, "aborted"}, {control.ErrQuit, "quit"}, {control.ErrHungUp, "hung-up"}, {control.ErrStopped, "stopped"}, {errBroke, "broken"},
		{errStalled, "stalled"}, {errContested, "contested"}, {errNotResumed, "not-resumed"},
		{errNotOpened, "not-opened"}, {files.ErrMoved, "moved"}, {files.ErrSwept, "swept"}, {files.ErrChanged, "changed"}, {syscall.ENOSPC, "disk-full"}, {syscall.EDQUOT, "disk-full"},
		{syscall.ECONNRESET, "broken"}, {syscall.EPIPE, "broken"}, {net.ErrClosed, "broken"}, {io.ErrUnexpectedEOF, "broken"},
	} {
		if errors.Is(err, known.is) {
			return known.word
		}
	}
	switch {
	case errors.As(err, &protected):
		return "protected"
	case errors.As(err, &later):
		return "suspended"
	}
	return "other"
}

// tell publishes how the transfer of a file has ended.
func (t *transfer) tell(err error) {
	e := event.Event{Path: t.account.inTree(t.path()), ASCII: t.ascii, Took: time.Since(t.since)}
	if err != nil {
		_, e.Reason, _ = t.client.explain(err)
	}
	_, isList := t.content.(*listing)
	switch {
	case isList:
		return
	case t.file == nil:
		e.Kind, e.Bytes = event.Download, t.bytes
	case err == nil || errors.Is(err, files.ErrNotDurable):
		e.Kind, e.Bytes = event.Publish, t.received
		if by := t.title; by.Lock != "" {
			e.Lock, e.Token, e.Holder, e.SHA256 = string(by.Lock), uint64(by.Token), by.Owner.String(), t.sum
		}
	default:
		e.Kind, e.Bytes, e.Cause = event.Discard, t.received, discardedBy(err)
	}
	t.told = t.client.tell(e)
}

// transfers are those with an open data connection.
type transfers struct {
	mu  sync.Mutex
	all map[*transfer]struct{}
}

func (t *transfers) add(one *transfer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = make(map[*transfer]struct{})
	}
	t.all[one] = struct{}{}
}

func (t *transfers) remove(one *transfer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, one)
}

func (t *transfers) snapshot() []*transfer {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.all))
}

// TransferStatus is what can be seen of a transfer that is under way.
type TransferStatus struct {
	Session lock.SessionID
	Account string
	Address string
	Path    string // in the served tree
	Upload  bool   // to the server
	Bytes   int64  // that the client has sent or acknowledged, TLS included; 0 where the system does not tell
	Since   time.Time
}

// Transfers lists the transfers with an open data connection, in no order.
func (s *Server) Transfers() []TransferStatus {
	under := s.transfers.snapshot()
	all := make([]TransferStatus, 0, len(under))
	for _, t := range under {
		status := TransferStatus{
			Session: lock.SessionID(t.client.id.Load()), Account: t.account.Name, Address: t.client.conn.IP().String(),
			Path: t.account.inTree(t.path()), Upload: t.file != nil, Since: t.since,
		}
		if moved, ok := bytesMoved(t.conn); ok {
			status.Bytes = int64(moved)
		}
		all = append(all, status)
	}
	return all
}

// CountTransfers says how many there are.
func (s *Server) CountTransfers() int {
	s.transfers.mu.Lock()
	defer s.transfers.mu.Unlock()
	return len(s.transfers.all)
}

// LogIn checks the password of a client that does not come by FTP, with the same delays after wrong ones. The error matches
// ErrLogin, or says why nobody can log in now.
func (s *Server) LogIn(ctx context.Context, user, password string, from netip.Addr) (Account, error) {
	return s.checkPassword(ctx, user, password, from, func() bool { return ctx.Err() != nil })
}
