package locksmith

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"
)

// A Client is one connection to a server, and the locks that are held over it. Several goroutines may call its methods at once: commands take
// turns. A connection that is lost is made again by the next call, and by the locks that are held.
type Client struct {
	e    *endpoint
	turn chan struct{} // holds a value while a goroutine uses the connection
	s    *session      // for the goroutine that has the turn; it may be broken
	uses atomic.Int32  // locks that are held, and acquisitions under way
}

// Dial connects and logs in. If ctx has a deadline, a server that cannot be reached is tried until then.
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
			return nil, &because{err, []error{context.Cause(ctx)}}
		}
	}
}

func isUnknownHost(err error) bool {
	dns, ok := errors.AsType[*net.DNSError](err)
	return ok && dns.IsNotFound
}

// Close ends the connection. The server ends the locks that are still held after the grace of [Server]. A second call does nothing.
func (c *Client) Close() error {
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	c.s.leave()
	return nil
}

// Missing lists the promises of this package that the server cannot keep; none for ftplockd.
func (c *Client) Missing() []string {
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	return c.s.missing()
}

func (s *session) missing() (all []string) {
	for _, p := range []struct{ verb, word, promise string }{
		{"SITE", "FACTS", "fencing tokens, and the end of a lock whose holder died"},
		{"SITE", "WAIT", "a queue of the clients that wait"},
		{"STOR", "STAGED", "uploads that other clients see whole only"},
	} {
		if !s.can(p.verb, p.word) {
			all = append(all, p.promise)
		}
	}
	return all
}

// Info returns what the server tells of a lock: a server without locks whether there is a directory, and when it was modified.
func (c *Client) Info(ctx context.Context, path string) (i Info, err error) {
	err = c.use(ctx, func(s *session) error {
		i, err = s.info(ctx, path)
		return err
	})
	return i, err
}

// use waits for the turn, makes the connection again if it was lost, and lends it.
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

// Inherit returns a lock that another connection of the job holds, such as one of the parent process: [Lock.Path], [Lock.Nonce] and
// [Lock.Token] of it are the path, Nonce of [Server] and the token. The lock ends with the other's, and Release only stops looking after it. The error is
// [ErrLost] if the job does not hold the lock. A server without tokens tells only whether the lock's directory exists.
func (c *Client) Inherit(ctx context.Context, path string, token uint64) (*Lock, error) {
	l := newLock(c, path, Options{})
	l.inherited, l.token = true, token
	err := l.use(ctx, func(*session) error { return nil }) // which looks, see resume
	if err != nil {
		l.over(err)
		return nil, err
	}
	l.start()
	return l, nil
}

// checkInherited returns ErrLost if no connection with the nonce holds the lock. A token later than that of the grant means that the holder had to
// connect again.
func (l *Lock) checkInherited(sent time.Time, i Info) error {
	h, ok := i.find(func(h Holder) bool { return h.Mine && h.Token >= l.Token() })
	if !ok {
		return fmt.Errorf("%w: %s: the job does not hold it", ErrLost, l.path)
	}
	h.grace = 0 // the holder looks after its connection
	l.confirmed(h, sent)
	return nil
}
