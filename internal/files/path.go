package files

import (
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// clean makes an FTP path absolute and lexically clean.
func clean(name string) (string, error) {
	if strings.IndexByte(name, 0) >= 0 {
		return name, marked(ErrName, syscall.EINVAL)
	}
	if name == "" || name[0] != '/' {
		name = "/" + name
	}
	return path.Clean(name), nil
}

// relative is the path within the root that a clean FTP path stands for.
func relative(name string) string {
	if name == "/" {
		return "."
	}
	return filepath.FromSlash(name[1:])
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
	dir  directory
	base string
	name string // the clean FTP path
}

// at does f where name is, and turns its error into one for the caller.
func (t *Tree) at(op, name string, f func(p place) error) error {
	name, err := clean(name)
	if err != nil {
		return fail(op, name, err)
	}
	p, err := t.find(name)
	if err != nil {
		return fail(op, name, err)
	}
	defer p.dir.close()
	return fail(op, name, f(p))
}

// find opens the parent directory of a clean name.
func (t *Tree) find(name string) (place, error) {
	dir, base := split(name)
	if t.isTemporary(base) {
		return place{}, ErrReserved
	}
	d, err := t.openDirectory(dir)
	return place{d, base, name}, err
}

// inRoot does f with the path within the root that name stands for.
func (t *Tree) inRoot(op, name string, f func(rel string) error) error {
	name, err := clean(name)
	if err != nil {
		return fail(op, name, err)
	}
	if _, base := split(name); t.isTemporary(base) {
		return fail(op, name, ErrReserved)
	}
	if err := t.check(op); err != nil {
		return fail(op, name, err)
	}
	return fail(op, name, rooted(f(relative(name))))
}

// rooted is an error of os.Root without a path in it. The only one that os.Root makes itself has no name: a link leads out.
func rooted(err error) error {
	if err == nil {
		return nil
	}
	err = bare(err)
	var errno syscall.Errno
	if errors.As(err, &errno) || errors.Is(err, fs.ErrClosed) {
		return err
	}
	return ErrEscapes
}

// maxLinks is how many symbolic links one name may lead through, as in os.Root.
const maxLinks = 8

// Resolve returns the one name that stands for name in rules and holds: cleaned, and with the
// symbolic links among its parents resolved. Its last element is not followed. Parents
// that do not exist stay as they are: what is done with the name will say so. A link that leads out
// of the tree is ErrEscapes.
func (t *Tree) Resolve(name string) (string, error) {
	name, err := clean(name)
	if err != nil {
		return "", fail("resolve", name, err)
	}
	dir, base := split(name)
	if dir == "/" || t.isPlain(dir) {
		return name, nil
	}
	dir, err = t.resolveLinks(dir)
	if err != nil {
		return "", fail("resolve", name, err)
	}
	return join(dir, base), nil
}

// resolveLinks follows the links in a clean path, one element after the other.
func (t *Tree) resolveLinks(name string) (string, error) {
	done, rest := "/", strings.Split(name, "/")
	for links := 0; len(rest) > 0; {
		element := rest[0]
		rest = rest[1:]
		switch {
		case element == "" || element == ".":
			continue
		case element == ".." && done == "/":
			return "", ErrEscapes
		case element == "..":
			done, _ = split(done)
			continue
		}
		next := join(done, element)
		target, err := t.readLink(next)
		switch {
		case err != nil:
			return "", err
		case target == "":
			done = next
			continue
		case strings.HasPrefix(target, "/"):
			return "", ErrEscapes
		}
		if links++; links > maxLinks {
			return "", syscall.ELOOP
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return done, nil
}

// readLink returns where a link leads; "" if the name is none, or is not there.
func (t *Tree) readLink(name string) (string, error) {
	if err := t.check("readlink"); err != nil {
		return "", err
	}
	target, err := t.root.Readlink(relative(name))
	if err = rooted(err); err == syscall.EINVAL || missing(err) {
		return "", nil
	}
	return filepath.ToSlash(target), err
}

// missing says whether there is nothing of that name, or something that is no directory above it.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}
