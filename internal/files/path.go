package files

import (
	"errors"
	"io/fs"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// clean makes an FTP path absolute and lexically clean.
func clean(name string) (string, error) {
	if strings.IndexByte(name, 0) >= 0 {
		return name, &marked{ErrName, unix.EINVAL}
	}
	if name == "" || name[0] != '/' {
		name = "/" + name
	}
	return path.Clean(name), nil
}

// relative is the path below the root's descriptor that an FTP path stands for.
func relative(name string) string {
	if name == "/" {
		return "."
	}
	return name[1:]
}

// split returns the directory that a clean path lies in, and its last element; "." for "/".
func split(name string) (dir, base string) {
	if name == "/" {
		return "/", "."
	}
	i := strings.LastIndexByte(name, '/')
	if i == 0 {
		return "/", name[1:]
	}
	return name[:i], name[i+1:]
}

// join is path.Join for what is clean already.
func join(dir, base string) string {
	if dir == "/" {
		return "/" + base
	}
	return dir + "/" + base
}

// place is where an operation happens: a directory held open, and a name in it.
type place struct {
	dir  int
	own  bool    // dir is this place's to close
	kept *parent // dir is its, which is kept open
	base string
	name string // the clean FTP path
}

func (p place) close() {
	if p.kept != nil {
		p.kept.done()
	}
	if p.own {
		unix.Close(p.dir)
	}
}

// at does f where name is, and turns its error into one for the caller.
func (t *Tree) at(op, name string, f func(p place) error) error {
	p, err := t.enter(name, dirFlags)
	if err != nil {
		return fail(op, p.name, err)
	}
	defer t.leave(p)
	return fail(op, p.name, f(p))
}

// enter finds the place of a name. With a nil error leave must follow.
func (t *Tree) enter(name string, flags int) (place, error) {
	name, err := clean(name)
	if err != nil {
		return place{name: name}, err
	}
	t.life.RLock()
	p, err := t.find(name, flags)
	if err != nil {
		t.life.RUnlock()
	}
	return p, err
}

func (t *Tree) leave(p place) {
	p.close()
	t.life.RUnlock()
}

// find opens the parent directory of a clean name. The caller holds t.life.
func (t *Tree) find(name string, flags int) (place, error) {
	p := place{name: name, dir: t.rootfd}
	if t.rootfd < 0 {
		return p, errClosed
	}
	var dir string
	dir, p.base = split(name)
	if t.reg.isTemporary(p.base) {
		return p, ErrReserved
	}
	if dir == "/" && flags == dirFlags {
		return p, nil
	}
	if flags == dirFlags {
		if kept := t.parents.use(dir); kept != nil {
			p.dir, p.kept = kept.fd, kept
			return p, nil
		}
	}
	fd, err := t.sys.open(dir, flags, 0)
	if err != nil {
		return p, err
	}
	p.dir, p.own = fd, true
	return p, nil
}

// maxLinks is how many symbolic links one name may lead through, as in Linux.
const maxLinks = 40

// Resolve returns the one name that stands for name in rules and holds: cleaned, and with the
// symbolic links among its parents resolved. Its last element is not followed. Parents
// that do not exist stay as they are: what is done with the name will say so. A link that leads out
// of the tree is ErrEscapes.
//
// A name right below the root costs no system call, one without links two, or one for each element of its parent if
// that is kept open.
func (t *Tree) Resolve(name string) (string, error) {
	name, err := clean(name)
	if err != nil {
		return "", fail("resolve", name, err)
	}
	dir, base := split(name)
	if dir == "/" {
		return name, nil
	}
	t.life.RLock()
	defer t.life.RUnlock()
	if t.rootfd < 0 {
		return "", fail("resolve", name, errClosed)
	}
	if kept := t.parents.use(dir); kept != nil {
		kept.done()
		return name, nil
	}
	fd, err := t.sys.openNoLinks(dir, dirFlags)
	switch {
	case err == nil:
		unix.Close(fd)
		return name, nil
	case missing(err): // without a link before it
		return name, nil
	case err != unix.ELOOP:
		return "", fail("resolve", name, err)
	}
	dir, err = t.resolveLinks(dir)
	if err != nil {
		return "", fail("resolve", name, err)
	}
	return join(dir, base), nil
}

// Spot is what Find says of a name.
type Spot struct {
	Name   string      // what Resolve says
	Roofed bool        // its parent is a directory
	Info   fs.FileInfo // what has the name, a link itself; nil: nothing, or Err
	Err    error       // of the look at it; that there is nothing is no error, that its parent is no directory is
}

// Find is Resolve and Lstat in one, with fewer system calls where the parent is kept open, and none but a look for news where the
// name was seen vacant and the system has told of no change since. Its error is that of Resolve.
func (t *Tree) Find(name string) (Spot, error) {
	cleaned, err := clean(name)
	if err != nil {
		return Spot{}, fail("resolve", name, err)
	}
	dir, base := split(cleaned)
	if t.parents.vacant(dir, base) {
		return Spot{Name: cleaned, Roofed: true}, nil
	}
	m := t.parents.mark(dir)
	if p, ok := t.enterKept(cleaned); ok {
		defer t.leave(p)
		s := t.spot(p, cleaned)
		if s.Info == nil && s.Err == nil {
			t.parents.note(m, base)
		}
		return s, nil
	}
	resolved, err := t.Resolve(cleaned)
	if err != nil {
		return Spot{}, err
	}
	p, err := t.enter(resolved, dirFlags)
	if err != nil {
		return Spot{Name: resolved, Err: unlessMissing(fail("lstat", resolved, err))}, nil
	}
	defer t.leave(p)
	return t.spot(p, resolved), nil
}

// enterKept is enter for a clean name without links in it: where its parent is kept open, or is the root. If it
// reports true leave must follow.
func (t *Tree) enterKept(name string) (place, bool) {
	t.life.RLock()
	dir, base := split(name)
	p := place{name: name, dir: t.rootfd, base: base}
	ok := t.rootfd >= 0 && !t.reg.isTemporary(base)
	if ok && dir != "/" {
		if p.kept = t.parents.use(dir); p.kept != nil {
			p.dir = p.kept.fd
		}
		ok = p.kept != nil
	}
	if !ok {
		t.life.RUnlock()
	}
	return p, ok
}

// spot looks at a name that is resolved, and entered.
func (t *Tree) spot(p place, name string) Spot {
	s := Spot{Name: name, Roofed: true}
	i, err := t.lstat(p)
	if err != nil {
		s.Err = unlessMissing(fail("lstat", name, err))
		return s
	}
	s.Info = i
	return s
}

func unlessMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// resolveLinks follows the links in a clean path, one element after the other.
func (t *Tree) resolveLinks(name string) (string, error) {
	done := "/"
	rest := strings.Split(relative(name), "/")
	for links := 0; len(rest) > 0; {
		element := rest[0]
		rest = rest[1:]
		switch element {
		case "", ".":
			continue
		case "..":
			if done == "/" {
				return "", ErrEscapes
			}
			done, _ = split(done)
			continue
		}
		target, err := t.readlink(done, element)
		switch {
		case err == unix.EINVAL || missing(err): // no link
			done = join(done, element)
			continue
		case err != nil:
			return "", err
		case strings.HasPrefix(target, "/"):
			return "", ErrEscapes
		}
		if links++; links > maxLinks {
			return "", unix.ELOOP
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return done, nil
}

// readlink reads a link in a directory whose path has no links any more.
func (t *Tree) readlink(dir, base string) (string, error) {
	fd, err := t.sys.open(dir, dirFlags, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	return t.sys.readlinkat(fd, base)
}

// missing says whether there is nothing of that name, or something that is no directory above it.
func missing(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR)
}

// openPlain opens a directory by a clean path without a link in it: ErrMoved if there is one, or nothing. The caller
// holds t.life.
func (t *Tree) openPlain(dir string) (int, error) {
	if t.rootfd < 0 {
		return -1, errClosed
	}
	fd, err := t.sys.openNoLinks(dir, dirFlags)
	if err != unix.ELOOP {
		if missing(err) {
			err = ErrMoved
		}
		return fd, err
	}
	real, err := t.resolveLinks(dir)
	if err != nil {
		return -1, err
	}
	if real != dir {
		return -1, ErrMoved
	}
	return t.sys.open(dir, dirFlags, 0)
}
