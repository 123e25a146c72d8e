package locksmith

import (
	"context"
	"errors"
	"fmt"
	"net/textproto"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/jlaffaye/ftp"
)

// Client is a connection that looks without taking a lock. Its methods may be called by several goroutines; one waits for the other.
type Client struct {
	e    *endpoint
	turn chan *session // holds the connection while nobody uses it; nil: it is closed
}

// Info is what a server tells of one lock.
type Info struct {
	Path    string
	Held    bool
	Since   time.Time // when it was taken; zero if the server does not say
	Holders []Holder  // none from a server that does not know
	Waiting int       // in the queue
}

// Holder is one who holds a lock.
type Holder struct {
	Owner   string // account@address
	Held    time.Duration
	Expires time.Duration // from now; 0 if never
	Shared  bool
	Token   uint64
}

var errClosed = errors.New("the client is closed")

// Dial logs in. Its errors match ErrUnreachable, ErrTLS, ErrLogin or ErrRefused (of Dir), or are the cause of ctx.
func Dial(ctx context.Context, s Server) (*Client, error) {
	e, err := s.resolve()
	if err != nil {
		return nil, err
	}
	first, err := connect(ctx, e)
	if err != nil {
		return nil, err
	}
	c := &Client{e: e, turn: make(chan *session, 1)}
	c.turn <- first
	return c, nil
}

// Close says QUIT, when what is under way is over. A second call does nothing.
func (c *Client) Close() error {
	s := <-c.turn
	if s != nil {
		s.leave(context.Background())
	}
	c.turn <- nil
	return nil
}

// use lends the connection, which is made again if it was lost meanwhile.
func (c *Client) use(ctx context.Context, look func(*session) error) error {
	var s *session
	select {
	case s = <-c.turn:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { c.turn <- s }()
	if s == nil {
		return errClosed
	}
	if s.broken() != nil {
		again, err := connect(ctx, c.e)
		if err != nil {
			return err
		}
		s.drop()
		s = again
	}
	err := look(s)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Info tells of the lock. Of a server that knows nothing of locks it is whether there is a directory, and when it was modified.
func (c *Client) Info(ctx context.Context, path string) (Info, error) {
	var i Info
	err := c.use(ctx, func(s *session) (err error) {
		var known bool
		if i, known, err = s.info(ctx, path); err != nil || known && i.Held {
			return err
		}
		return s.seen(ctx, path, &i, known)
	})
	return i, err
}

// seen looks at the directory. Of a server that knows locks, one that it does not know is none.
func (s *session) seen(ctx context.Context, p string, i *Info, known bool) error {
	if known && s.knowsLocks() {
		return nil
	}
	for _, how := range looks(s) {
		m, is, err := how.look(ctx, s, p)
		if err != nil {
			return err
		}
		if is == present {
			i.Held, i.Since = true, m.since
			return nil
		}
	}
	return nil
}

// List tells of the locks below a directory, in the order of their paths: of all that are held, however deep, from ftplockd ("" is everywhere);
// from other servers of the directories in it ("" is where the account begins).
func (c *Client) List(ctx context.Context, dir string) ([]Info, error) {
	var all []Info
	err := c.use(ctx, func(s *session) (err error) {
		all, err = s.locks(ctx, dir)
		return err
	})
	return all, err
}

func (s *session) locks(ctx context.Context, dir string) ([]Info, error) {
	if dir != "" {
		dir = path.Clean(s.abs(dir))
	}
	command := "SITE LOCKS"
	if dir != "" && dir != "/" {
		command += " " + escaped(dir) + "/**"
	}
	r, err := s.ask(ctx, command)
	if err != nil {
		return nil, err
	}
	if r.code != 211 {
		return s.directories(ctx, dir)
	}
	var all []Info
	for _, line := range r.body() {
		if i, ok := lockOfLine(line, time.Now()); ok && below(i.Path, dir) {
			all = append(all, i)
		}
	}
	slices.SortFunc(all, func(a, b Info) int { return strings.Compare(a.Path, b.Path) })
	return all, nil
}

// escaped is a path as a glob that matches it alone.
func escaped(p string) string {
	var b strings.Builder
	for _, r := range []byte(p) {
		if strings.IndexByte(`*?[]{}\`, r) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(r)
	}
	return b.String()
}

func below(p, dir string) bool {
	return dir == "" || p != dir && strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

func (s *session) directories(ctx context.Context, dir string) ([]Info, error) {
	entries, err := s.list(ctx, dir)
	var said *textproto.Error
	switch {
	case errors.As(err, &said):
		return nil, fmt.Errorf("%w: %s: the server said %d %s", ErrRefused, dir, said.Code, said.Msg)
	case err != nil:
		return nil, fmt.Errorf("%s: %s", dir, plain(err))
	}
	var all []Info
	for _, e := range entries {
		if name := path.Base(e.Name); e.Type == ftp.EntryTypeFolder && name != "." && name != ".." {
			all = append(all, Info{Path: path.Join(dir, name), Held: true, Since: e.Time})
		}
	}
	slices.SortFunc(all, func(a, b Info) int { return strings.Compare(a.Path, b.Path) })
	return all, nil
}

// WaitGroup waits until no lock is held below the directory (its members), without taking one, at most until ctx ends: then it
// returns its cause. poll is the mean pause between two looks; 0: 3 s.
func (c *Client) WaitGroup(ctx context.Context, dir string, poll time.Duration) error {
	if poll <= 0 {
		poll = 3 * time.Second
	}
	for {
		members, err := c.List(ctx, dir)
		if err != nil || len(members) == 0 {
			return err
		}
		if pause(ctx, poll); ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}
