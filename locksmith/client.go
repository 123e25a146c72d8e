package locksmith

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"
)

// A Client is one connection to a server, with the locks that are held over it. Several goroutines may call its methods at once. After the connection
// is lost, the next call connects again, and so do the locks that are held.
type Client struct {
	e    *endpoint
	turn chan struct{} // holds a value while a goroutine uses the connection
	s    *session      // for the goroutine that has the turn; it may be broken
	uses atomic.Int32  // the number of held locks and of running acquisitions
	life context.Context
	end  context.CancelCauseFunc
}

var errClientClosed = fmt.Errorf("%w: the client was closed", ErrLost)

// Dial connects and logs in. If ctx has a deadline and the server cannot be reached, it tries again until then.
//
// The errors match [ErrUnreachable], [ErrTLS], [ErrLogin], [ErrRefused], or the cause of ctx.
func Dial(ctx context.Context, s Server) (*Client, error) {
	e, err := s.resolve()
	if err != nil {
		return nil, err
	}
	_, timed := ctx.Deadline()
	for {
		session, err := connect(ctx, e)
		if err == nil {
			c := &Client{e: e, s: session, turn: make(chan struct{}, 1)}
			c.life, c.end = context.WithCancelCause(context.Background())
			return c, nil
		}
		if !timed || !errors.Is(err, ErrUnreachable) || isUnknownHost(err) {
			return nil, err
		}
		if pause(ctx, min(e.Poll, time.Second)); ctx.Err() != nil {
			return nil, &causedError{err, []error{context.Cause(ctx)}}
		}
	}
}

func isUnknownHost(err error) bool {
	dns, ok := errors.AsType[*net.DNSError](err)
	return ok && dns.IsNotFound
}

// Close ends the connection. Locks that are still held are lost, and ftplockd ends them after the grace of [Server]. Later calls of other methods
// return [ErrLost], and calls under way end after a few seconds. A second call does nothing.
func (c *Client) Close() error {
	c.end(errClientClosed)
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	c.s.leave()
	return nil
}

// Info returns the facts of a lock. A server without locks only reports whether the directory exists.
func (c *Client) Info(ctx context.Context, path string) (i Info, err error) {
	err = c.use(ctx, func(s *session) error {
		i, err = s.info(ctx, path)
		return err
	})
	return i, err
}

// use waits for the turn, connects again if the connection was lost, and calls do.
func (c *Client) use(ctx context.Context, do func(*session) error) error {
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-c.turn }()
	if c.life.Err() != nil {
		return errClientClosed
	}
	if c.s.broken() != nil {
		s, err := c.reconnect(ctx)
		if err != nil {
			return err
		}
		c.s.drop()
		c.s = s
	}
	s := c.s
	defer context.AfterFunc(c.life, func() { s.abort(errClientClosed) })()
	return do(s)
}

// reconnect connects again, until ctx or the Client ends.
func (c *Client) reconnect(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.life, func() { cancel(errClientClosed) })()
	return connect(ctx, c.e)
}

// Inherit returns a lock that another connection of the job holds, for instance one of the parent process. path and token are [Lock.Path] and
// [Lock.Token] of that lock, and the Nonce of [Server] is its [Lock.Nonce]. Both locks end together. Release does not release the lock of the other
// connection. The error is [ErrLost] if the job does not hold the lock. On a server without tokens, Inherit only checks whether the directory exists.
func (c *Client) Inherit(ctx context.Context, path string, token uint64) (*Lock, error) {
	l := newLock(c, path, Options{})
	l.inherited, l.token = true, token
	err := l.use(ctx, func(*session) error { return nil }) // resume checks the lock
	if err != nil {
		l.end(err)
		return nil, err
	}
	l.start()
	return l, nil
}
