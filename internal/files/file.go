package files

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"syscall"

	"github.com/spf13/afero"
)

// Open opens a regular file or a directory for reading. A link is followed within the tree. Anything else, such as a
// pipe, is ErrNotRegular, and is not waited for. The file implements [io.WriterTo]; it can be closed from another goroutine.
func (t *Tree) Open(name string) (afero.File, error) {
	name, err := clean(name)
	if err != nil {
		return nil, fail("open", name, err)
	}
	f, err := t.openCleaned(name)
	if err != nil {
		return nil, fail("open", name, err)
	}
	return f, nil
}

func (t *Tree) openCleaned(name string) (afero.File, error) {
	f, i, err := t.openReadable(name)
	if err != nil {
		return nil, err
	}
	if !i.IsDir() {
		return &reading{closedToAll: closedToAll{name}, file: f, size: i.Size()}, nil
	}
	dir, err := t.directoryOf(f, name)
	if err != nil {
		return nil, err
	}
	return &listing{closedToAll{name}, dir}, nil
}

// OpenDirectory opens a directory, as Open does, if there is no link in its name: ENOTDIR, ELOOP. On Linux that is one system call.
func (t *Tree) OpenDirectory(name string) (afero.File, error) {
	name, err := clean(name)
	if err != nil {
		return nil, fail("open", name, err)
	}
	if _, base := split(name); t.isTemporary(base) {
		return nil, fail("open", name, ErrReserved)
	}
	dir, err := t.openPlain(name)
	if err != nil {
		return nil, fail("open", name, err)
	}
	return &listing{closedToAll{name}, dir}, nil
}

// Create is refused: a file is written by [Tree.Upload] only.
func (t *Tree) Create(name string) (afero.File, error) {
	return t.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0)
}

// OpenFile is Open, see there. To write is refused, see Create.
func (t *Tree) OpenFile(name string, flag int, _ fs.FileMode) (afero.File, error) {
	if flag != os.O_RDONLY {
		return nil, fail("open", name, fs.ErrPermission)
	}
	return t.Open(name)
}

// closedToAll refuses what none of the kinds of files below can do.
type closedToAll struct{ name string }

func (c closedToAll) Name() string                       { return c.name }
func (c closedToAll) refuse(op string) error             { return fail(op, c.name, fs.ErrInvalid) }
func (c closedToAll) Read([]byte) (int, error)           { return 0, c.refuse("read") }
func (c closedToAll) ReadAt([]byte, int64) (int, error)  { return 0, c.refuse("read") }
func (c closedToAll) Seek(int64, int) (int64, error)     { return 0, c.refuse("seek") }
func (c closedToAll) Write([]byte) (int, error)          { return 0, c.refuse("write") }
func (c closedToAll) WriteAt([]byte, int64) (int, error) { return 0, c.refuse("write") }
func (c closedToAll) WriteString(string) (int, error)    { return 0, c.refuse("write") }
func (c closedToAll) Truncate(int64) error               { return c.refuse("truncate") }
func (c closedToAll) Readdir(int) ([]fs.FileInfo, error) {
	return nil, fail("readdir", c.name, syscall.ENOTDIR)
}
func (c closedToAll) Readdirnames(int) ([]string, error) {
	return nil, fail("readdir", c.name, syscall.ENOTDIR)
}
func (c closedToAll) Sync() error { return nil }

// listing is an open directory. Its names come as the system has them, and are not held.
type listing struct {
	closedToAll
	dir directory
}

func (l *listing) Stat() (fs.FileInfo, error) {
	i, err := l.dir.lstat(".")
	if err != nil {
		return nil, fail("stat", l.name, err)
	}
	i.name = path.Base(l.name)
	return i, nil
}

func (l *listing) Close() error {
	l.dir.close()
	return nil
}

// Readdir works as that of package os. It describes links themselves. What goes away meanwhile is left out.
func (l *listing) Readdir(n int) ([]fs.FileInfo, error) {
	for {
		names, err := l.Readdirnames(n)
		list := make([]fs.FileInfo, 0, len(names))
		for _, name := range names {
			i, err := l.Lstat(name)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return list, err
			}
			list = append(list, i)
		}
		if n <= 0 || err != nil || len(list) > 0 {
			return list, err
		}
	}
}

// Lstat describes what has a name in the directory, a link itself.
func (l *listing) Lstat(base string) (fs.FileInfo, error) {
	i, err := l.dir.lstat(base)
	if err != nil {
		return nil, fail("lstat", join(l.name, base), err)
	}
	return i, nil
}

// Mkdir makes a directory in it, less the umask. The name must be free: fs.ErrExist. If perm has [fs.ModeSticky], the same system call
// sets that bit, where the system and the file system can.
func (l *listing) Mkdir(base string, perm fs.FileMode) error {
	err := error(ErrReserved)
	if !l.dir.tree.isTemporary(base) {
		err = newName(l.dir.makeDir(base, perm))
	}
	return fail("mkdir", join(l.name, base), err)
}

// RemoveDir removes a directory in it that is empty: ENOTEMPTY, ENOTDIR.
func (l *listing) RemoveDir(base string) error {
	err := error(ErrReserved)
	if !l.dir.tree.isTemporary(base) {
		err = l.dir.removeDir(base)
	}
	return fail("rmdir", join(l.name, base), err)
}

// Readdirnames works as that of package os, and leaves out the names that clients do not see.
func (l *listing) Readdirnames(n int) ([]string, error) {
	for {
		var names []string
		err := l.dir.read(func(f *os.File) (err error) {
			names, err = f.Readdirnames(n)
			return err
		})
		names = slices.DeleteFunc(names, func(name string) bool { return l.dir.tree.isTemporary(name) || Hidden(name) })
		if err == io.EOF {
			return nil, io.EOF
		}
		if n <= 0 || err != nil || len(names) > 0 {
			return names, fail("readdir", l.name, err)
		}
	}
}

// reading is a file open for reading. It keeps the file that was opened, whatever is published under the name meanwhile.
type reading struct {
	closedToAll
	file *os.File
	size int64 // when it was opened
}

var _ io.WriterTo = (*reading)(nil)

// Read fails with ErrShrunk at the end of a file that is shorter than when it was opened.
func (r *reading) Read(p []byte) (int, error) {
	n, err := r.file.Read(p)
	if err == io.EOF {
		return n, r.ended(io.EOF)
	}
	return n, fail("read", r.name, err)
}

// WriteTo leaves it to *os.File: to a *net.TCPConn the bytes go within the kernel (sendfile). It fails with ErrShrunk as Read does.
func (r *reading) WriteTo(w io.Writer) (int64, error) {
	n, err := io.Copy(w, r.file)
	if err == nil {
		return n, r.ended(nil)
	}
	return n, fail("read", r.name, err)
}

// ended returns what is said at the end of the file: whole, or why the end came too early.
func (r *reading) ended(whole error) error {
	at, err := r.file.Seek(0, io.SeekCurrent)
	switch {
	case err == nil && at < r.size:
		err = ErrShrunk
	case err == nil:
		return whole
	}
	return fail("read", r.name, err)
}

func (r *reading) ReadAt(p []byte, off int64) (int, error) {
	n, err := r.file.ReadAt(p, off)
	if err == io.EOF {
		return n, err
	}
	return n, fail("read", r.name, err)
}

func (r *reading) Seek(offset int64, whence int) (int64, error) {
	at, err := r.file.Seek(offset, whence)
	return at, fail("seek", r.name, err)
}

// Stat describes the file that is open, which may have another name by now, or none.
func (r *reading) Stat() (fs.FileInfo, error) {
	i, err := describe(r.file, path.Base(r.name))
	if err != nil {
		return nil, fail("stat", r.name, err)
	}
	return i, nil
}

func (r *reading) Close() error { return fail("close", r.name, r.file.Close()) }
