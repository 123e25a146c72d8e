package locksmith

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A Client is one connection to a server, and the locks that are held over it. Several goroutines may call its methods at once: commands take
// turns. A connection that is lost is made again by the next call, and by the locks that are held.
type Client struct {
	e    *endpoint
	talk chan struct{}        // holds a value while a goroutine uses the connection
	s    *session             // for the goroutine that talks; it may be broken
	join func(*session) error // verifies the lock of Join; nil: there is none

	mu   sync.Mutex
	uses int // locks that are held, and acquisitions under way
}

// Dial connects and logs in. If ctx has a deadline, a server that cannot be reached is tried until then.
//
// The errors match [ErrUnreachable], [ErrTLS], [ErrLogin], [ErrRefused] (of Dir), or the cause of ctx.
func Dial(ctx context.Context, s Server) (*Client, error) {
	e, err := s.resolve()
	if err != nil {
		return nil, err
	}
	_, timed := ctx.Deadline()
	for {
		session, err := connect(ctx, e)
		if err == nil {
			e.Logger.Debug("connected", "server", e.Address, "missing", session.missing())
			return &Client{e: e, s: session, talk: make(chan struct{}, 1)}, nil
		}
		if !timed || !errors.Is(err, ErrUnreachable) || isUnknownHost(err) {
			return nil, err
		}
		if pause(ctx, min(e.Poll, time.Second)); ctx.Err() != nil {
			return nil, &because{err, []error{context.Cause(ctx)}}
		}
	}
}

// Close ends the connection. The server ends the locks that are still held after the grace of [Server]. A second call does nothing.
func (c *Client) Close() error {
	c.talk <- struct{}{}
	defer c.end()
	c.s.leave()
	return nil
}

// Missing lists the promises of this package that the server cannot keep; none for ftplockd.
func (c *Client) Missing() []string {
	c.talk <- struct{}{}
	defer c.end()
	return c.s.missing()
}

// begin waits for the turn to use the connection. end gives it up.
func (c *Client) begin(ctx context.Context) error {
	select {
	case c.talk <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *Client) end() { <-c.talk }

// session returns the connection, made again if it was lost. The caller has the turn.
func (c *Client) session(ctx context.Context) (*session, error) {
	if c.s.broken() == nil {
		return c.s, nil
	}
	s, err := connect(ctx, c.e)
	if err != nil {
		return nil, err
	}
	c.e.Logger.Info("connected again", "server", c.e.Address, "lost", c.s.broken())
	c.s.drop()
	c.s = s
	return s, nil
}

// locker returns the connection, on which the server knows the job of the locks.
func (c *Client) locker(ctx context.Context) (*session, error) {
	s, err := c.session(ctx)
	if err == nil {
		err = s.identify(ctx)
	}
	return s, err
}

// count adds to the uses, and returns how many others there are.
func (c *Client) count(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.uses += n
	return c.uses - n
}

// use lends the connection to one look or transfer. When ctx ends, the connection ends.
func (c *Client) use(ctx context.Context, look func(*session) error) error {
	if err := c.begin(ctx); err != nil {
		return err
	}
	defer c.end()
	s, err := c.session(ctx)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() {
		s.abort(context.Cause(ctx))
		s.link.cut(context.Cause(ctx))
	})
	defer stop()
	if err = look(s); err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Join makes the connection speak for a lock that another connection of its job holds, whose [Lock.Path], [Lock.Nonce] and [Lock.Token] these
// are: ftplockd lets it change the files that the lock protects. It returns [ErrLost] if the job does not hold the lock. On a server without tokens
// it checks only that the lock's directory exists.
func (c *Client) Join(ctx context.Context, path, nonce string, token uint64) error {
	return c.use(ctx, func(s *session) error {
		if s.knowsLocks() && nonce != "" {
			if err := s.must(ctx, "SITE LOCK AS "+nonce); err != nil {
				return err
			}
		}
		c.join = func(s *session) error { return s.jobHolds(path, nonce, token) }
		return c.join(s)
	})
}

// jobHolds returns ErrLost if no connection with the nonce holds the lock. The token is that of the grant: a later one means that the holder had to
// connect again. Then only a command that is for the holder alone tells, and the renewal does no harm.
func (s *session) jobHolds(path, nonce string, token uint64) error {
	if !s.knowsLocks() {
		got, _, err := s.see(path)
		if err == nil && !got.there {
			err = fmt.Errorf("%w: %s: its directory is gone", ErrLost, path)
		}
		return err
	}
	i, err := s.info(context.Background(), path)
	if err != nil {
		return err
	}
	if i.has(token) && nonce != "" {
		return nil
	}
	r, err := s.ask(context.Background(), "SITE LOCK RENEW "+path)
	if err == nil && !r.good() {
		err = fmt.Errorf("%w: %s", ErrLost, r.text())
	}
	return err
}

// missing is Client.Missing.
func (s *session) missing() (all []string) {
	for _, p := range []struct {
		verb, word, promise string
	}{
		{"SITE", "LOCK", "fencing tokens, and the end of a lock whose holder died"},
		{"SITE", "WAIT", "a queue of the clients that wait"},
		{"STOR", "STAGED", "uploads that other clients see whole only"},
	} {
		if !slices.Contains(s.words(p.verb), p.word) {
			all = append(all, p.promise)
		}
	}
	return all
}
