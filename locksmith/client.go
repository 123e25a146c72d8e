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
}

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
			e.Logger.Debug("connected", "server", e.Address, "missing", session.missing())
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

// Close ends the connection. The server ends locks that are still held after the grace of [Server]. A second call does nothing.
func (c *Client) Close() error {
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	c.s.leave()
	return nil
}

// Missing lists the promises of this package that the server cannot keep; the list is empty for ftplockd.
func (c *Client) Missing() []string {
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	return c.s.missing()
}

func (s *session) missing() (all []string) {
	for _, p := range []struct{ verb, word, promise string }{
		{"SITE", "FACTS", "fencing tokens, and the end of a lock whose holder died"},
		{"SITE", "WAIT", "a queue of the clients that wait"},
		{"STOR", "STAGED", "uploads that are published in one step"},
	} {
		if !s.can(p.verb, p.word) {
			all = append(all, p.promise)
		}
	}
	return all
}

// Info returns the facts of a lock. A server without locks only reports whether the directory exists, and the time of its last change.
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
	if lost := c.s.broken(); lost != nil {
		s, err := connect(ctx, c.e)
		if err != nil {
			return err
		}
		c.e.Logger.Info("connected again", "server", c.e.Address, "lost", lost)
		c.s.drop()
		c.s = s
	}
	return do(c.s)
}

// Inherit returns a lock that another connection of the job holds, for instance one of the parent process. path and token are [Lock.Path] and
// [Lock.Token] of that lock, and the Nonce of [Server] is its [Lock.Nonce]. Both locks end together. Release does not release the lock of the other
// connection. The error is [ErrLost] if the job does not hold the lock. On a server without tokens, Inherit only checks whether the directory exists.
func (c *Client) Inherit(ctx context.Context, path string, token uint64) (*Lock, error) {
	l := newLock(c, path, Options{})
	l.inherited, l.token = true, token
	err := l.use(ctx, func(*session) error { return nil }) // resume checks the lock
	if err != nil {
		l.over(err)
		return nil, err
	}
	l.start()
	return l, nil
}

// checkInherited returns ErrLost if no connection with the nonce holds the lock. The token grows when the holder connects again.
func (l *Lock) checkInherited(sent time.Time, i Info) error {
	h, ok := i.find(func(h Holder) bool { return h.Mine && h.Token >= l.Token() })
	if !ok {
		return fmt.Errorf("%w: %s: the job does not hold it", ErrLost, l.path)
	}
	h.grace = 0 // it counts for the holder's connection
	l.confirmed(h, sent)
	return nil
}
