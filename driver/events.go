package driver

import (
	"time"

	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/event"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// emit publishes an event with the session's id, account and address, and returns it.
func (c *client) emit(e event.Event) event.Event {
	e.Session, e.Account, e.Remote = lock.SessionID(c.id.Load()), c.account.Name, c.conn.IP().String()
	c.server.events.Publish(e)
	return e
}

// emitEnd publishes the event of the end of a transfer of a file. err is why it failed, or nil.
func (t *transfer) emitEnd(err error) {
	if _, isList := t.content.(*listing); isList {
		return
	}
	e := event.Event{Path: inTree(t.client.account.Home, t.view), ASCII: t.ascii, Took: time.Since(t.since)}
	cause := ""
	if err != nil {
		why, _ := t.client.explain(err)
		e.Reason, cause = why.text, why.cause
	}
	switch {
	case t.file == nil:
		e.Kind, e.Bytes = event.Download, t.bytes
	case t.placed:
		e.Kind, e.Bytes = event.Publish, t.received
		if by := t.permitAtEnd; by.Lock != "" {
			e.Lock, e.Token, e.Holder, e.SHA256 = string(by.Lock), uint64(by.Token), by.Owner, t.sum
		}
	default:
		e.Kind, e.Bytes, e.Cause = event.Discard, t.received, cause
	}
	t.endEvent = t.client.emit(e)
}

// TransferStatus describes a transfer under way.
type TransferStatus struct {
	Session lock.SessionID
	Account string
	Address string
	Path    string // in the served tree
	Upload  bool   // to the server
	Bytes   int64  // that the client sent or acknowledged, TLS included; 0 if the system does not report it
	Since   time.Time
}

// Transfers lists the transfers with an open data connection, in no order.
func (s *Server) Transfers() (all []TransferStatus) {
	for t := range s.transfers.Range {
		t := t.(*transfer)
		status := TransferStatus{
			Session: lock.SessionID(t.client.id.Load()), Account: t.client.account.Name, Address: t.client.conn.IP().String(),
			Path: inTree(t.client.account.Home, t.view), Upload: t.file != nil, Since: t.since,
		}
		if moved, ok := control.BytesMoved(t.conn); ok {
			status.Bytes = int64(moved)
		}
		all = append(all, status)
	}
	return all
}

// CountTransfers returns the number of transfers with an open data connection.
func (s *Server) CountTransfers() (n int) {
	for range s.transfers.Range {
		n++
	}
	return n
}
