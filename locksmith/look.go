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

// Info returns what the server tells of a lock: of a server without locks whether there is a directory, and when it was modified.
func (c *Client) Info(ctx context.Context, path string) (i Info, err error) {
	err = c.use(ctx, func(s *session) error {
		i, err = s.lookAt(ctx, path)
		return err
	})
	return i, err
}

// lookAt is Client.Info.
func (s *session) lookAt(ctx context.Context, path string) (Info, error) {
	if s.knowsLocks() {
		return s.info(ctx, path)
	}
	got, _, err := s.see(path)
	i := Info{Path: s.abs(path), Held: got.there}
	if got.exact {
		i.Since = got.since
	}
	return i, err
}

// List returns the locks that are held, in the order of their paths. ftplockd lists the lock of that path and all below it, however deep; "" is
// everything, and a path that ends in "/" means what is below it only. Other servers list the directories in it; "" is where the account begins.
func (c *Client) List(ctx context.Context, path string) (all []Info, err error) {
	err = c.use(ctx, func(s *session) error {
		all, err = s.list(ctx, path)
		return err
	})
	return all, err
}

// list is Client.List.
func (s *session) list(ctx context.Context, path string) (all []Info, err error) {
	if s.knowsLocks() {
		all, err = s.locks(ctx, path)
	} else {
		all, err = s.directories(path)
	}
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
// that ends.
func (c *Client) Wait(ctx context.Context, path string) error {
	for {
		busy, err := c.Busy(ctx, path)
		if err != nil || !busy {
			return err
		}
		if pause(ctx, c.e.Poll); ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// Busy reports whether Wait would wait.
func (c *Client) Busy(ctx context.Context, path string) (busy bool, err error) {
	err = c.use(ctx, func(s *session) error {
		if !strings.HasSuffix(path, "/") {
			i, err := s.lookAt(ctx, path)
			switch {
			case err != nil || i.Held || !s.knowsLocks():
				busy = i.Held
				return err
			case i.None:
				return fmt.Errorf("%w: no rule of the server makes %s a lock", ErrRefused, i.Path)
			}
		}
		all, err := s.list(ctx, path)
		busy = len(all) > 0
		return err
	})
	return busy, err
}

// sight is what a look at a directory came to, on a server that knows nothing of locks.
type sight struct {
	there bool
	known bool // the server could say whether it is there
	exact bool // since is exact, and UTC
	since time.Time
}

// mark tells one directory from another of the same name.
type mark struct {
	by    func(*session, string) (sight, error)
	since time.Time
}

// see looks at a directory by MDTM and, where that tells nothing (vsftpd has none of directories), in the listing of its parent. The mark is by
// the first of the two that sees it.
func (s *session) see(p string) (sight, *mark, error) {
	var last sight
	for _, by := range []func(*session, string) (sight, error){byMDTM, byList} {
		got, err := by(s, p)
		if err != nil {
			return sight{}, nil, err
		}
		if got.there {
			return got, &mark{by, got.since}, nil
		}
		if got.known {
			last = got
		}
	}
	return last, nil, nil
}

func byMDTM(s *session, p string) (sight, error) {
	at, err := s.ftp.GetTime(p)
	if err == nil {
		return sight{there: true, known: true, exact: true, since: at}, nil
	}
	return sight{known: isCode(err, 550)}, s.broken()
}

func byList(s *session, p string) (sight, error) {
	dir := path.Dir(p)
	if dir == "." {
		dir = ""
	}
	entries, err := s.ftp.List(dir)
	if err != nil {
		return sight{known: isCode(err, 550)}, s.broken()
	}
	for _, e := range entries {
		if e.Type == ftp.EntryTypeFolder && path.Base(e.Name) == path.Base(p) {
			return sight{there: true, known: true, since: e.Time}, nil
		}
	}
	return sight{known: true}, nil
}

// isCode reports whether an error of the library is a reply with that code.
func isCode(err error, code int) bool {
	var said *textproto.Error
	return errors.As(err, &said) && said.Code == code
}

// info asks a server that knows locks. One of several that cannot prove for the moment that it may say so is ErrUnknown.
func (s *session) info(ctx context.Context, p string) (Info, error) {
	i := Info{Path: s.abs(p)}
	r, err := s.ask(ctx, "SITE LOCK INFO "+p)
	if err != nil {
		return i, err
	}
	if r.transient() {
		return i, fmt.Errorf("%w: %s", ErrUnknown, r.text())
	}
	if r.code == 211 {
		i.Path = strings.TrimPrefix(r.lines()[0], "Lock ")
		for _, line := range r.body() {
			i.addLine(line, time.Now())
		}
	}
	i.None = noLock.MatchString(r.text())
	return i, nil
}
