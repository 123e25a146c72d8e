package locksmith

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// closeTimeout is the time limit of QUIT, and of the end of a data connection.
	closeTimeout = 2 * time.Second
	// checkTimeout is the time limit of a check of a held lock. Then the client connects again, because a network that loses all packets looks like
	// a slow server, and the lease continues to run.
	checkTimeout = 5 * time.Second
	// maxReply limits the bytes of one reply.
	maxReply = 4 << 20
)

var (
	errClosed  = errors.New("the connection was cut")
	errEndless = errors.New("a reply without an end")
)

// link is a TCP connection, for control or for data. Each read and write has a time limit: package ftp has none. cut ends it with a reason.
type link struct {
	net.Conn
	data     bool
	used     atomic.Bool  // a byte was read or written
	received atomic.Int64 // on a control connection: bytes since the last command

	mu     sync.Mutex
	limit  time.Duration // of each read and write
	broken error         // the reason of the end; nil: it has not ended
}

// extendDeadline sets the time limit of the next read or write, or returns the reason of the end.
func (l *link) extendDeadline() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken == nil {
		_ = l.SetDeadline(time.Now().Add(l.limit))
	}
	return l.broken
}

// Read implements net.Conn.
func (l *link) Read(p []byte) (int, error) {
	if err := l.extendDeadline(); err != nil {
		return 0, err
	}
	n, err := l.Conn.Read(p)
	if n > 0 {
		l.used.Store(true)
	}
	if l.received.Add(int64(n)) > maxReply && !l.data {
		l.cut(errEndless)
	}
	return n, l.reason(err)
}

// Write implements net.Conn.
func (l *link) Write(p []byte) (int, error) {
	if err := l.extendDeadline(); err != nil {
		return 0, err
	}
	l.used.Store(true)
	l.received.Store(0)
	n, err := l.Conn.Write(p)
	return n, l.reason(err)
}

// reason returns the reason of the end in place of an error, if the link was cut.
func (l *link) reason(err error) error {
	if why := l.err(); err != nil && why != nil {
		return why
	}
	return err
}

// err returns the reason of the end; nil if the link has not ended.
func (l *link) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken
}

// cut ends the link with a reason; the first one counts. Reads and writes under way fail at once. The end of a data connection is the only mark of
// the end of a file (RFC 959 section 3.4.1), so closing a data connection that was cut resets it, even if the end of the program closes it.
func (l *link) cut(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken != nil {
		return
	}
	l.broken = why
	_ = l.SetDeadline(time.Unix(1, 0))
	if c, ok := l.Conn.(interface{ SetLinger(int) error }); ok && l.data {
		_ = c.SetLinger(0)
	}
}

// setLimit sets the time limit of each later read and write.
func (l *link) setLimit(limit time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limit = limit
}

// Close ends the connection. It reads a data connection that was used and not cut to its end: TLS servers send session tickets, and closing a
// connection with unread bytes resets it, which is a failure for vsftpd. After a refused transfer a server may leave the data connection open.
func (l *link) Close() error {
	if c, ok := l.Conn.(interface{ CloseWrite() error }); ok && l.data && l.used.Load() && l.err() == nil {
		_ = l.SetDeadline(time.Now().Add(closeTimeout))
		_ = c.CloseWrite()
		_, _ = io.Copy(io.Discard, l.Conn)
	}
	return l.Conn.Close()
}

// endingAfter returns a context that ends d after ctx.
func endingAfter(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	late, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			cancel(context.Cause(ctx))
		case <-late.Done():
		}
	})
	return late, func() {
		stop()
		cancel(nil)
	}
}
