package files

import (
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// prefix begins the names of the server's own files and directories. Clients neither see nor use such names.
const prefix = ".ftplockd-"

// Hidden reports whether clients must not see or use a path: an element of it has a name that only the server makes. A caller that
// serves clients checks this. The methods of a [Tree] accept such names, but listings leave them out.
func Hidden(name string) bool {
	for element := range strings.SplitSeq(name, "/") {
		if strings.HasPrefix(element, prefix) {
			return true
		}
	}
	return false
}

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

// relative returns the path within the root for a clean FTP path.
func relative(name string) string {
	if name == "/" {
		return "."
	}
	return filepath.FromSlash(name[1:])
}

// split returns the directory of a clean path, and its last element; "." for "/".
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

// join is path.Join for clean arguments.
func join(dir, base string) string {
	if dir == "/" {
		return "/" + base
	}
	return dir + "/" + base
}

// place is where an operation happens: an open directory, and a name in it.
type place struct {
	dir  directory
	base string
	name string // the clean FTP path
}

// at opens the parent of a name and calls f with the place. It returns an error for the caller of this package.
func (t *Tree) at(op, name string, f func(p place) error) error {
	name, err := clean(name)
	if err != nil {
		return fail(op, name, err)
	}
	parent, base := split(name)
	d, err := t.openDirectory(parent)
	if err != nil {
		return fail(op, name, err)
	}
	defer d.close()
	return fail(op, name, f(place{d, base, name}))
}

// inRoot calls f with the path within the root for a name. It returns an error for the caller of this package.
func (t *Tree) inRoot(op, name string, f func(rel string) error) error {
	name, err := clean(name)
	if err == nil {
		err = t.injectedFault(op)
	}
	if err == nil {
		err = rootError(f(relative(name)))
	}
	return fail(op, name, err)
}

// rootError strips the path from an error of os.Root. The only error that os.Root makes itself is that a link leads out.
func rootError(err error) error {
	if err == nil {
		return nil
	}
	err = stripPaths(err)
	var errno syscall.Errno
	if errors.As(err, &errno) || errors.Is(err, fs.ErrClosed) {
		return err
	}
	return ErrEscapes
}

// maxLinks is the number of symbolic links that one name may lead through, as in os.Root.
const maxLinks = 8

// Resolve returns the name that stands for a path in rules and holds: it is clean, and the symbolic links among its parents
// are resolved. The last element is not followed. Parents that do not exist stay as they are: an operation on the name returns the
// error. A link that leads out of the tree is ErrEscapes.
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

// Readlink returns the target of a link as the link stores it; "" if the name is no link, or does not exist. The target can be absolute, or lead
// out of the tree.
func (t *Tree) Readlink(name string) (string, error) {
	name, err := clean(name)
	target := ""
	if err == nil {
		target, err = t.readLink(name)
	}
	return target, fail("readlink", name, err)
}

// readLink returns the target of a link; "" if the name is no link, or does not exist.
func (t *Tree) readLink(name string) (string, error) {
	if err := t.injectedFault("readlink"); err != nil {
		return "", err
	}
	target, err := t.root.Readlink(relative(name))
	if err = rootError(err); err == syscall.EINVAL || missing(err) {
		return "", nil
	}
	return filepath.ToSlash(target), err
}

// missing reports whether nothing has the name, or a file is above it.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}
