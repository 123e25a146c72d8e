package files

import (
	"cmp"
	"os"
	"syscall"
)

// openDirectory opens a directory by its clean name. It follows links that stay in the tree.
func (t *Tree) openDirectory(name string) (directory, error) {
	return t.openAs(name, openDirectories, false)
}

// openPlain is openDirectory for a name without links: ELOOP.
func (t *Tree) openPlain(name string) (directory, error) {
	return t.openAs(name, openDirectories, true)
}

// open opens the file or directory of a clean name, through links within the tree. Another goroutine may close it.
func (t *Tree) open(name string, flags int) (*os.File, error) {
	d, err := t.openAs(name, flags, false)
	if err != nil {
		return nil, err
	}
	return d.asFile(), nil
}

// sync makes the changes of names in the directory survive a loss of power.
func (d directory) sync() error {
	return cmp.Or(d.tree.injectedFault("fsync"), d.syncNames())
}

// openStepwise opens a clean name through os.Root, which opens one element after the other. With plain a link in the name is ELOOP.
func (t *Tree) openStepwise(name string, flags int, plain bool) (*os.File, error) {
	if plain {
		if resolved, err := t.resolveLinks(name); err != nil || resolved != name {
			return nil, cmp.Or(err, error(syscall.ELOOP))
		}
	}
	f, err := t.root.OpenFile(relative(name), flags, 0)
	if err != nil {
		return nil, rootError(err)
	}
	return f, nil
}
