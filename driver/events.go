package driver

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/ftplockd/ftplockd/internal/event"
	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// tell publishes an event with the session's id, account and address, and returns it.
func (c *client) tell(e event.Event) event.Event {
	e.Session, e.Account, e.Remote = sessionText(lock.SessionID(c.id.Load())), c.account.Name, c.conn.IP().String()
	c.server.events.Publish(e)
	return e
}

// tellRefused publishes the refusal of a lock.
func (c *client) tellRefused(n lock.Name, err error) {
	a, _ := c.explain(err)
	c.tell(event.Event{Kind: event.Refuse, Lock: string(n), Cause: a.cause, Reason: a.text})
}

// tell publishes the end of the transfer of a file. err is its cause; nil is success.
func (t *transfer) tell(err error) {
	e := event.Event{Path: t.account.inTree(t.path()), ASCII: t.ascii, Took: time.Since(t.since)}
	var why answer
	if err != nil {
		why, _ = t.client.explain(err)
		e.Reason = why.text
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
		e.Kind, e.Bytes, e.Cause = event.Discard, t.received, why.cause
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

// TransferStatus describes a transfer under way.
type TransferStatus struct {
	Session lock.SessionID
	Account string
	Address string
	Path    string // in the served tree
	Upload  bool   // to the server
	Bytes   int64  // that the client has sent or acknowledged, TLS included; 0 if the system does not report it
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

// CountTransfers returns the number of transfers with an open data connection.
func (s *Server) CountTransfers() int {
	s.transfers.mu.Lock()
	defer s.transfers.mu.Unlock()
	return len(s.transfers.all)
}

// LogIn checks a password for the web page, with the same delays after wrong ones as in FTP. The error matches
// ErrLogin if the password is wrong; any other error is a reason why no login is possible now.
func (s *Server) LogIn(ctx context.Context, user, password string, from netip.Addr) (Account, error) {
	return s.checkPassword(ctx, user, password, from, func() bool { return ctx.Err() != nil })
}
