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
// pipe, is ErrNotRegular without a wait. The file implements [io.WriterTo]. Another goroutine may close it.
func (t *Tree) Open(name string) (afero.File, error) {
	name, err := clean(name)
	if err != nil {
		return nil, fail("open", name, err)
	}
	f, i, err := t.openReadable(name)
	if err != nil {
		return nil, fail("open", name, err)
	}
	if i.IsDir() {
		return &listing{noIO{name}, directory{tree: t, name: name, file: f}}, nil
	}
	return &reading{noIO{name}, f, i, 0}, nil
}

// OpenDirectory opens a directory if there is no link in its name: ENOTDIR, ELOOP. On Linux this is one system call. The file is for
// one goroutine, and must be closed once.
func (t *Tree) OpenDirectory(name string) (afero.File, error) {
	name, err := clean(name)
	if err != nil {
		return nil, fail("open", name, err)
	}
	dir, err := t.openPlain(name)
	if err != nil {
		return nil, fail("open", name, err)
	}
	return &listing{noIO{name}, dir}, nil
}

// Create is refused: only [Tree.Upload] writes files.
func (t *Tree) Create(name string) (afero.File, error) {
	return nil, fail("create", name, fs.ErrPermission)
}

// OpenFile is refused: Open reads, and [Tree.Upload] writes.
func (t *Tree) OpenFile(name string, _ int, _ fs.FileMode) (afero.File, error) {
	return nil, fail("open", name, fs.ErrPermission)
}

// noIO refuses the operations of afero.File. listing and reading embed it and override the operations that they have.
type noIO struct{ name string }

func (c noIO) Name() string                       { return c.name }
func (c noIO) refuse(op string) error             { return fail(op, c.name, fs.ErrInvalid) }
func (c noIO) Read([]byte) (int, error)           { return 0, c.refuse("read") }
func (c noIO) ReadAt([]byte, int64) (int, error)  { return 0, c.refuse("read") }
func (c noIO) Seek(int64, int) (int64, error)     { return 0, c.refuse("seek") }
func (c noIO) Write([]byte) (int, error)          { return 0, c.refuse("write") }
func (c noIO) WriteAt([]byte, int64) (int, error) { return 0, c.refuse("write") }
func (c noIO) WriteString(string) (int, error)    { return 0, c.refuse("write") }
func (c noIO) Truncate(int64) error               { return c.refuse("truncate") }
func (c noIO) Sync() error                        { return c.refuse("sync") }
func (c noIO) Readdir(int) ([]fs.FileInfo, error) {
	return nil, fail("readdir", c.name, syscall.ENOTDIR)
}
func (c noIO) Readdirnames(int) ([]string, error) {
	return nil, fail("readdir", c.name, syscall.ENOTDIR)
}

// listing is an open directory. Its names come in the order of the system, and are not kept in memory.
type listing struct {
	noIO
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

// Readdir works like that of package os. It describes links themselves, and omits files that are removed meanwhile.
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

// Readdirnames is that of package os without the names that are [Hidden].
func (l *listing) Readdirnames(n int) ([]string, error) {
	for {
		names, err := l.dir.asFile().Readdirnames(n)
		names = slices.DeleteFunc(names, Hidden)
		if err == io.EOF {
			return nil, io.EOF
		}
		if n <= 0 || err != nil || len(names) > 0 {
			return names, fail("readdir", l.name, err)
		}
	}
}

// Lstat describes a file in the directory, or a link itself.
func (l *listing) Lstat(base string) (fs.FileInfo, error) {
	i, err := l.dir.lstat(base)
	if err != nil {
		return nil, l.failed("lstat", base, err)
	}
	return i, nil
}

// Mkdir makes a directory in this one, less the umask. The name must be free: fs.ErrExist. If perm has [fs.ModeSticky], the same
// system call sets that bit, where the system and the file system keep one.
func (l *listing) Mkdir(base string, perm fs.FileMode) error {
	return l.failed("mkdir", base, markBadName(l.dir.makeDir(base, perm)))
}

// RemoveDir removes an empty directory in this one: ENOTEMPTY, ENOTDIR.
func (l *listing) RemoveDir(base string) error {
	return l.failed("rmdir", base, l.dir.removeDir(base))
}

func (l *listing) failed(op, base string, err error) error {
	if err == nil {
		return nil
	}
	return fail(op, join(l.name, base), err)
}

// reading is a file open for reading. It stays the file that was opened when another one is published under the name.
type reading struct {
	noIO
	file   *os.File
	opened *info // the file when it was opened
	at     int64 // the offset of the next Read
}

var _ io.WriterTo = (*reading)(nil)

// Read returns ErrShrunk at the end of a file that is shorter than when it was opened.
func (r *reading) Read(p []byte) (int, error) {
	n, err := r.file.Read(p)
	r.at += int64(n)
	if err == io.EOF {
		return n, r.ended(io.EOF)
	}
	return n, fail("read", r.name, err)
}

// WriteTo copies the file to a *net.TCPConn within the kernel (sendfile). It returns ErrShrunk as Read does.
func (r *reading) WriteTo(w io.Writer) (int64, error) {
	n, err := io.Copy(w, r.file)
	r.at += n
	if err == nil {
		return n, r.ended(nil)
	}
	return n, fail("read", r.name, err)
}

// ended returns the result at the end of the file: whole, or an error if the end came too early.
func (r *reading) ended(whole error) error {
	if r.at < r.opened.size {
		return fail("read", r.name, ErrShrunk)
	}
	return whole
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
	if err == nil {
		r.at = at
	}
	return at, fail("seek", r.name, err)
}

// Stat describes the file when it was opened.
func (r *reading) Stat() (fs.FileInfo, error) { return r.opened, nil }

func (r *reading) Close() error { return fail("close", r.name, r.file.Close()) }
