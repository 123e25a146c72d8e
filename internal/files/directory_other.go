//go:build !linux

package files

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// On systems other than Linux the methods of a directory are those of os.Root, which go by path. So some promises are weaker:
//
//   - An operation in a directory that a program on the host renames meanwhile fails, or acts in its replacement.
//   - removeDir and removeFile look, and then remove. If a program on the host replaces a file by an empty directory between
//     the two, they remove that.
//   - renameNew looks, and then renames. A file that is made between the two is replaced.
//   - A directory has no Identity that distinguishes it from a later one of its name, and makeDir sets no sticky bit.
//   - An upload does not keep the owner, the group and the access control list of the file that it replaces, and the free space is unknown.
//   - On Windows a change of a directory may not survive a loss of power.

// The flags of open.
const (
	openDirectories = os.O_RDONLY
	openReading     = os.O_RDONLY | syscall.O_NONBLOCK // does not wait for the writer of a pipe
	openTarget      = openReading
)

// directory is an open directory of the tree.
type directory struct {
	tree *Tree
	name string // the clean FTP path when it was opened
	file *os.File
}

func (t *Tree) openAs(name string, flags int, plain bool) (directory, error) {
	f, err := t.openStepwise(name, flags, plain)
	if err != nil {
		return directory{}, err
	}
	if i, err := f.Stat(); flags == openDirectories && (err != nil || !i.IsDir()) {
		f.Close()
		return directory{}, cmp.Or(stripPaths(err), error(syscall.ENOTDIR))
	}
	return directory{t, name, f}, nil
}

func (d *directory) asFile() *os.File { return d.file }
func (d directory) close()            { d.file.Close() }
func (d directory) syncNames() error  { return syncDirectory(d.file) }

// IsFree returns false: it cannot be found out quickly.
func (t *Tree) IsFree(string) bool { return false }

// isPlain returns false: there may be a link in the name.
func (t *Tree) isPlain(string) bool { return false }

// in returns the path of a name in the directory for os.Root.
func (d directory) in(base string) string { return relative(join(d.name, base)) }

func (d directory) lstat(base string) (*info, error) {
	of, err := d.tree.root.Lstat(d.in(base))
	if err != nil {
		return nil, rootError(err)
	}
	return infoOf(of, base), nil
}

func describe(f *os.File, name string) (*info, error) {
	of, err := f.Stat()
	if err != nil {
		return nil, stripPaths(err)
	}
	return infoOf(of, name), nil
}

func infoOf(of fs.FileInfo, name string) *info {
	return &info{name: name, size: of.Size(), mode: of.Mode(), modified: of.ModTime(), host: of, details: details{links: 1}}
}

// same reports whether two names are of one file.
func (i *info) same(o *info) bool { return os.SameFile(i.host, o.host) }

func (d directory) create(base string, mode fs.FileMode) (*os.File, error) {
	f, err := d.tree.root.OpenFile(d.in(base), os.O_RDWR|os.O_CREATE|os.O_EXCL, mode.Perm())
	return f, rootError(err)
}

func (d directory) makeDir(base string, perm fs.FileMode) error {
	return rootError(d.tree.root.Mkdir(d.in(base), perm.Perm()))
}

func (d directory) removeDir(base string) error  { return d.remove(base, true, syscall.ENOTDIR) }
func (d directory) removeFile(base string) error { return d.remove(base, false, syscall.EISDIR) }

func (d directory) remove(base string, dir bool, other error) error {
	i, err := d.lstat(base)
	if err != nil {
		return err
	}
	if i.IsDir() != dir {
		return other
	}
	return rootError(d.tree.root.Remove(d.in(base)))
}

func (d directory) rename(base string, to place) error {
	return rootError(d.tree.root.Rename(d.in(base), to.dir.in(to.base)))
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
	return rootError(d.tree.root.Link(d.in(base), d.in(newbase)))
}

// retain does nothing: there is no O_PATH, and on Windows an open file cannot be replaced.
func (d directory) retain(string, *info) (release func()) { return func() {} }

func (d directory) space() (uint64, error) { return 0, errors.ErrUnsupported }

// startWriteBack and awaitWriteBack do nothing: only Linux has the call.
func startWriteBack(*os.File, int64, int64)       {}
func awaitWriteBack(*os.File, int64, int64) error { return nil }
