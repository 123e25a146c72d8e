//go:build !linux

package files

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// directory is an open directory of the tree, by what os.Root has methods for. Only Linux has the faults that tests inject. It cannot
// promise what needs a system call of its own:
//
//   - removeDir and removeFile look, and then remove: if a program on the host replaces a file by an empty directory between
//     the two, that is removed.
//   - renameNew looks, and then renames: a file that comes up between the two is replaced.
//   - A rename from one directory to another goes by the names of the two.
//   - Nobody tells a directory from a later one of the same name: Identity is 0. makeDir sets no sticky bit.
//   - The owner of a file that is replaced is not kept, and the free space is not known.
//   - On Windows the change of a directory may not survive a loss of power.
type directory struct {
	tree *Tree
	root *os.Root
	file *os.File
	name string
}

func (t *Tree) openDirectory(name string) (directory, error) {
	root, err := t.root.OpenRoot(relative(name))
	if err != nil {
		return directory{}, rooted(err)
	}
	f, err := root.Open(".")
	if err != nil {
		return directory{}, errors.Join(rooted(err), root.Close())
	}
	return directory{t, root, f, name}, nil
}

// openPlain is openDirectory for a name with no link in it: ELOOP.
func (t *Tree) openPlain(name string) (directory, error) {
	plain, err := t.resolveLinks(name)
	if err == nil && plain != name {
		err = syscall.ELOOP
	}
	if err != nil {
		return directory{}, err
	}
	return t.openDirectory(name)
}

// openFile opens a file or directory for reading. It does not wait for the writer of a pipe.
func (t *Tree) openFile(name string) (*os.File, error) {
	f, err := t.root.OpenFile(relative(name), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	return f, rooted(err)
}

func (t *Tree) openTop() error { return nil }

// IsFree reports false: whether the name is free is not known.
func (t *Tree) IsFree(string) bool { return false }

// isPlain reports whether it is known that there is no link in a name.
func (t *Tree) isPlain(string) bool { return false }

func (t *Tree) directoryOf(f *os.File, name string) (directory, error) {
	f.Close()
	return t.openDirectory(name)
}

func (d directory) close() { _ = errors.Join(d.file.Close(), d.root.Close()) }

// read calls f with the directory as a file whose entries can be read.
func (d directory) read(f func(*os.File) error) error { return f(d.file) }

// sync has what was done in the directory survive a loss of power.
func (d directory) sync() error {
	return syncDirectory(d.file)
}

func (d directory) lstat(base string) (*info, error) {
	of, err := d.root.Lstat(base)
	if err != nil {
		return nil, rooted(err)
	}
	return infoOf(of, base), nil
}

func infoOf(of fs.FileInfo, name string) *info {
	return &info{name: name, size: of.Size(), mode: of.Mode(), modified: of.ModTime(), host: of, details: details{links: 1}}
}

func (d directory) create(base string, mode fs.FileMode) (*os.File, error) {
	f, err := d.root.OpenFile(base, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode.Perm())
	return f, rooted(err)
}

// makeDir makes a directory, never with a sticky bit.
func (d directory) makeDir(base string, perm fs.FileMode) error {
	return rooted(d.root.Mkdir(base, perm.Perm()))
}

func (d directory) removeDir(base string) error {
	return d.remove(base, true, syscall.ENOTDIR)
}
func (d directory) removeFile(base string) error {
	return d.remove(base, false, syscall.EISDIR)
}

func (d directory) remove(base string, dir bool, other error) error {
	i, err := d.lstat(base)
	if err != nil {
		return err
	}
	if i.IsDir() != dir {
		return other
	}
	return rooted(d.root.Remove(base))
}

func (d directory) rename(base string, to place) error {
	if d.name == to.dir.name {
		return rooted(d.root.Rename(base, to.base))
	}
	return rooted(d.tree.root.Rename(relative(join(d.name, base)), relative(join(to.dir.name, to.base))))
}

func (d directory) renameNew(base string, to place) error {
	if _, err := to.dir.lstat(to.base); err == nil {
		return fs.ErrExist
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return d.rename(base, to)
}

func (d directory) link(base, newbase string) error {
	return rooted(d.root.Link(base, newbase))
}

func (d directory) space() (uint64, error) { return 0, errors.ErrUnsupported }
