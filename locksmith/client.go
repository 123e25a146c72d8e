package locksmith

import (
	"context"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/jlaffaye/ftp"
)

// Client is a connection that looks without taking a lock. One goroutine at a time may call its methods. When a call has said that the
// connection is lost (ErrUnreachable), or its context has ended, the others fail, too.
type Client struct {
	s      *session
	stands func() error // returns an error if the lock of Join is not held; nil: there is none
}

// Info is what a server tells of one lock.
type Info struct {
	Path    string
	Held    bool
	None    bool      // ftplockd has no rule that makes it a lock
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

// Dial logs in. Its errors match ErrUnreachable, ErrTLS, ErrLogin, ErrRefused (of Dir), or the cause of ctx.
func Dial(ctx context.Context, s Server) (*Client, error) {
	e, err := s.resolve()
	if err != nil {
		return nil, err
	}
	session, err := connect(ctx, e)
	if err != nil {
		return nil, err
	}
	return &Client{s: session}, nil
}

// Close says QUIT. A second call does nothing.
func (c *Client) Close() error {
	c.s.leave()
	return nil
}

// use lends the connection. When ctx ends, the connection ends.
func (c *Client) use(ctx context.Context, look func(*session) error) error {
	if err := c.s.broken(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() {
		c.s.abort(context.Cause(ctx))
		c.s.link.cut(context.Cause(ctx))
	})
	defer stop()
	err := look(c.s)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Join makes the connection speak for a lock that another connection of its job holds, whose [Lock.Path], [Lock.Nonce] and [Lock.Token] these
// are: ftplockd lets it change the files that the lock protects. It returns ErrLost if the job does not hold the lock. On a server without tokens
// it checks only that the lock's directory exists.
func (c *Client) Join(ctx context.Context, path, nonce string, token uint64) error {
	return c.use(ctx, func(s *session) error {
		if s.knowsLocks() && nonce != "" {
			if err := s.speakAs(ctx, nonce); err != nil {
				return err
			}
		}
		c.stands = func() error { return s.jobHolds(path, nonce, token) }
		return c.stands()
	})
}

// jobHolds returns ErrLost if no connection with the nonce holds the lock. The token is that of the grant: a later one means that the holder had to
// connect again. Then only a command of the holder's own tells, and the renewal does no harm.
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
	if _, ours := i.has(token); ours && nonce != "" {
		return nil
	}
	r, err := s.ask(context.Background(), "SITE LOCK RENEW "+path)
	if err == nil && !r.good() {
		err = fmt.Errorf("%w: %s", ErrLost, r.text())
	}
	return err
}

// Put is as [Lock.Put], under the lock of Join.
func (c *Client) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	return c.use(ctx, func(s *session) error {
		u := &upload{s: s, stands: c.stands, ask: s.ask, ctx: ctx, name: name, size: size, source: r}
		if s.can("STOR", "STAGED") { // the connection is in use until the server has published the file
			u.stands = func() error { return nil }
		}
		return transferred(name, u.run())
	})
}

// Get is as [Lock.Get], under the lock of Join.
func (c *Client) Get(ctx context.Context, name string, w io.Writer) (int64, error) {
	d := &download{to: w}
	err := c.use(ctx, func(s *session) error {
		if err := d.run(s, name); err != nil {
			return transferred(name, err)
		}
		return c.stands()
	})
	return d.written, err
}

// Info tells of the lock. Of a server that knows nothing of locks it is whether there is a directory, and when it was modified.
func (c *Client) Info(ctx context.Context, path string) (Info, error) {
	var i Info
	err := c.use(ctx, func(s *session) (err error) {
		if s.knowsLocks() {
			i, err = s.info(ctx, path)
			return err
		}
		got, _, err := s.see(path)
		i = Info{Path: s.abs(path), Held: got.there}
		if got.exact {
			i.Since = got.since
		}
		return err
	})
	return i, err
}

// List tells of locks in the order of their paths. ftplockd tells of the lock of that path and of all below it, however deep; "" is
// everything, and a path that ends in "/" means what is below it only. Other servers tell of the directories in it; "" is where the account begins.
func (c *Client) List(ctx context.Context, path string) ([]Info, error) {
	var all []Info
	err := c.use(ctx, func(s *session) (err error) {
		if s.knowsLocks() {
			all, err = s.locks(ctx, path)
		} else {
			all, err = s.directories(path)
		}
		return err
	})
	slices.SortFunc(all, func(a, b Info) int { return strings.Compare(a.Path, b.Path) })
	return all, err
}

// locks asks ftplockd. The names are compared once more: a path may mean something else as a glob.
func (s *session) locks(ctx context.Context, p string) ([]Info, error) {
	command, below := "SITE LOCKS", ""
	if p != "" {
		group := strings.HasSuffix(p, "/")
		below = strings.TrimSuffix(path.Clean(s.abs(p)), "/") + "/"
		command += " " + globChars.Replace(below) + "**"
		if p = strings.TrimSuffix(below, "/"); group {
			p = below
		}
	}
	r, err := s.ask(ctx, command)
	if err != nil {
		return nil, err
	}
	if r.code != 211 {
		return nil, fmt.Errorf("%w: the server said %s to SITE LOCKS", ErrRefused, r)
	}
	var all []Info
	for _, line := range r.body() {
		i, ok := lockOfLine(line, time.Now())
		if ok && (strings.HasPrefix(i.Path, below) || i.Path == p) {
			all = append(all, i)
		}
	}
	return all, nil
}

// globChars has a path match itself alone.
var globChars = strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `{`, `\{`, `}`, `\}`, `\`, `\\`)

func (s *session) directories(dir string) ([]Info, error) {
	entries, err := s.ftp.List(dir)
	if err != nil {
		return nil, transferred(dir, err)
	}
	var all []Info
	for _, e := range entries {
		if name := path.Base(e.Name); e.Type == ftp.EntryTypeFolder && name != "." && name != ".." {
			all = append(all, Info{Path: path.Join(dir, name), Held: true, Since: e.Time})
		}
	}
	return all, nil
}

// Wait waits until a lock is free, without taking it: until neither it nor, on ftplockd, one below it is held. A path that ends in "/" means what
// is below it only (the members of a group). Wait returns nil then, ErrRefused if it is known to be no lock, and the cause of ctx when
// that ends. poll is the mean pause between two looks; 0: 3 s.
func (c *Client) Wait(ctx context.Context, path string, poll time.Duration) error {
	if poll <= 0 {
		poll = defaultPoll
	}
	for {
		busy, err := c.Busy(ctx, path)
		if err != nil || !busy {
			return err
		}
		if pause(ctx, poll); ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// Busy reports whether Wait would wait.
func (c *Client) Busy(ctx context.Context, path string) (bool, error) {
	if !strings.HasSuffix(path, "/") {
		i, err := c.Info(ctx, path)
		if err != nil || i.Held || !c.s.knowsLocks() {
			return i.Held, err
		}
		if i.None {
			return false, fmt.Errorf("%w: no rule of the server makes %s a lock", ErrRefused, i.Path)
		}
	}
	all, err := c.List(ctx, path)
	return len(all) > 0, err
}
