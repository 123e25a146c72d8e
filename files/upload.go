package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// UploadOptions say how an upload begins. Of Append, HasOffset and Unique at most one is set.
type UploadOptions struct {
	// Append begins with a copy of the old content (APPE); there need not be any.
	Append bool
	// HasOffset begins with a copy of the first Offset bytes of the old content (REST and STOR): the result
	// is those bytes and the ones that are written, and no old bytes after them. A file that is
	// shorter, or missing with an Offset above 0, is ErrOffset. Offset counts bytes on disk, in ASCII too.
	HasOffset bool
	Offset    int64
	// Unique chooses a name that is free (STOU): name is a directory, or a suggestion that gets a suffix if it is taken.
	Unique bool
	// ASCII converts CRLF to LF; bare LF and lone CR stay (RFC 959 section 3.1.1.1).
	ASCII bool
	// Exclusive refuses to replace: fs.ErrExist, from Upload, or from Publish if the name came up meanwhile.
	Exclusive bool
	// Owner, with HasOffset, goes on with what this owner left with Keep under this name, if it is long enough.
	Owner string
	Pace  Pace
}

// Upload is a file on its way in: a temporary beside its target that nobody sees. It ends with Publish,
// Discard or Keep. It is for one goroutine, but Discard and Name may come from another.
type Upload struct {
	tree    *Tree
	opt     UploadOptions
	name    string // guarded by tree.reg.mu: a rename of the directory changes it
	claimed string // the name that was chosen for Unique
	place   place  // the directory, held open: wherever it is moved to, the file goes with it
	synced  bool   // the directory can be synced by its descriptor
	rec     *record
	file    *os.File
	ascii   *toLF // nil: binary

	received atomic.Int64
	size     atomic.Int64

	mu     sync.Mutex // held while the upload ends, disk access included, so that it ends in one way
	over   bool
	whole  bool  // Sync was done and nothing came since
	broken error // the first failure of a write
	left   error // why the temporary could not be removed after it was linked to its name
}

var (
	_ io.Writer     = (*Upload)(nil)
	_ io.ReaderFrom = (*Upload)(nil)
)

// Upload begins an upload to name. Its parent must be there, and what has the name, if anything, must be a regular
// file or a link to no directory: EISDIR, ErrNotRegular. A link is replaced itself, not what it leads to, so that a
// name can stand for one file only; Append and HasOffset take the old content from where it leads within the tree.
//
// The mode of the file will be that of the one which it replaces, else the tree's less the umask.
func (t *Tree) Upload(name string, o UploadOptions) (*Upload, error) {
	name, err := clean(name)
	if err != nil {
		return nil, fail("upload", name, err)
	}
	u := &Upload{tree: t, opt: o, name: name}
	t.life.RLock()
	defer t.life.RUnlock()
	if t.rootfd < 0 {
		return nil, fail("upload", name, errClosed)
	}
	if o.Unique {
		if u.claimed, err = t.freeName(name); err != nil {
			return nil, fail("upload", name, err)
		}
		u.name = u.claimed
	}
	if err := u.begin(); err != nil {
		u.abandon()
		return nil, fail("upload", u.name, err)
	}
	return u, nil
}

// begin finds the target's directory and makes the temporary. The caller abandons the upload after an error.
func (u *Upload) begin() error {
	t := u.tree
	if err := u.openParent(); err != nil {
		return err
	}
	mode, err := u.target()
	if err != nil {
		return err
	}
	if u.opt.ASCII {
		u.ascii = &toLF{}
	}
	if u.opt.HasOffset && u.opt.Owner != "" {
		if ok, err := u.resume(); ok || err != nil {
			t.reg.begin(u)
			return err
		}
	}
	if u.rec, err = t.newRecord(u.place); err != nil {
		return err
	}
	fd, err := t.sys.createat(u.place.dir, u.rec.temporary(), mode)
	if err != nil {
		u.forget()
		return err
	}
	u.file = os.NewFile(uintptr(fd), u.name)
	t.reg.begin(u)
	return u.copyOld()
}

// forget drops the record of a temporary that was never made.
func (u *Upload) forget() {
	u.tree.dropRecord(u.rec) // a record that cannot be removed is harmless: a Sweep finds nothing to it
	u.rec = nil
}

// openParent opens the target's directory, for syncing it too if that is wanted and allowed.
func (u *Upload) openParent() error {
	t, dir := u.tree, ""
	u.place.name = u.name
	dir, u.place.base = split(u.name)
	if t.reg.isTemporary(u.place.base) {
		return ErrReserved
	}
	fd, err := -1, error(unix.EACCES)
	if t.opt.Durable {
		fd, err = t.sys.open(dir, syncFlags, 0)
		u.synced = err == nil
	}
	if err == unix.EACCES { // a directory that may be written and not read
		fd, err = t.sys.open(dir, dirFlags, 0)
	}
	if err != nil {
		return err
	}
	u.place.dir, u.place.own = fd, true
	return nil
}

// target looks at what has the name now, and returns the mode to begin with.
func (u *Upload) target() (fs.FileMode, error) {
	t := u.tree
	if u.place.base == "." {
		return 0, unix.EISDIR
	}
	old, err := t.sys.lstatat(u.place.dir, u.place.base, u.place.base)
	switch {
	case err == unix.ENOENT:
		return t.opt.Mode, nil
	case err != nil:
		return 0, newName(err)
	case u.opt.Exclusive:
		return 0, fs.ErrExist
	case old.IsDir():
		return 0, unix.EISDIR
	case old.isLink():
		if i, err := t.follow(u.place); err == nil && i.IsDir() {
			return 0, unix.EISDIR
		}
		return t.opt.Mode, nil
	case !old.isRegular():
		return 0, ErrNotRegular
	}
	return old.Mode().Perm(), nil
}

// copyOld puts the old content, or its first bytes, into the temporary.
func (u *Upload) copyOld() error {
	if !u.opt.Append && (!u.opt.HasOffset || u.opt.Offset == 0) {
		return nil
	}
	if u.opt.HasOffset && u.opt.Offset < 0 {
		return ErrOffset
	}
	t := u.tree
	fd, err := t.openRegular(u.name)
	if errors.Is(err, unix.ENOENT) {
		if u.opt.HasOffset {
			return ErrOffset
		}
		return nil
	}
	if err != nil {
		return err
	}
	old := os.NewFile(uintptr(fd), u.name)
	defer old.Close()
	i, err := t.sys.fstat(fd, "")
	if err != nil {
		return err
	}
	want := i.Size()
	if u.opt.HasOffset {
		if u.opt.Offset > want {
			return ErrOffset
		}
		want = u.opt.Offset
	}
	return u.copyFrom(old, want)
}

// copyFrom copies the first bytes of a file; within the file system (reflink, copy_file_range) where that can.
func (u *Upload) copyFrom(old *os.File, want int64) error {
	if err := u.tree.sys.check("copy"); err != nil {
		return err
	}
	n, err := u.file.ReadFrom(&io.LimitedReader{R: old, N: want})
	u.size.Add(n)
	if err == nil && n < want && u.opt.HasOffset {
		err = ErrOffset // it was cut off meanwhile
	}
	return bare(err)
}

// uniqueTries is how many suffixes of a suggested name are tried before it is random ones.
const uniqueTries = 100

// freeName chooses a name for STOU (RFC 959 section 4.1.3) that neither a file nor another such upload has. That it
// is free is made sure of again when it is published, in one step.
func (t *Tree) freeName(name string) (string, error) {
	suggestion := name
	fd, err := t.sys.open(name, dirFlags, 0)
	switch {
	case err == nil:
		unix.Close(fd)
		return t.tryNames(func(int) string { return join(name, "stou."+newID()[:10]) })
	case !missing(err):
		return "", err
	}
	return t.tryNames(func(i int) string {
		switch {
		case i == 0:
			return suggestion
		case i <= uniqueTries:
			return suggestion + "." + strconv.Itoa(i)
		}
		return suggestion + "." + newID()[:10]
	})
}

func (t *Tree) tryNames(candidate func(int) string) (string, error) {
	for i := range 2 * uniqueTries {
		name := candidate(i)
		if !t.reg.claim(name) {
			continue
		}
		p, err := t.find(name, dirFlags)
		if err == nil {
			_, err = t.sys.lstatat(p.dir, p.base, p.base)
			p.close()
		}
		if err == unix.ENOENT {
			return name, nil
		}
		t.reg.unclaim(name)
		if err != nil && !errors.Is(err, ErrReserved) {
			return "", err
		}
	}
	return "", fs.ErrExist
}

// Name returns the FTP path that the file will have, or has since Publish. It changes if a directory above
// it is renamed through the tree meanwhile.
func (u *Upload) Name() string { return u.tree.reg.nameOf(u) }

// Received returns how many bytes came from the wire, before any conversion.
func (u *Upload) Received() int64 { return u.received.Load() }

// Size returns how long the file is so far, copied old content included.
func (u *Upload) Size() int64 { return u.size.Load() }

// Write adds bytes as they came from the wire. After a failure the upload can only be discarded or kept.
func (u *Upload) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, err := u.write(p)
	return n, fail("upload", u.Name(), err)
}

func (u *Upload) write(p []byte) (int, error) {
	if err := u.dirty(); err != nil {
		return 0, err
	}
	if u.ascii == nil {
		n, err := u.put(p)
		u.received.Add(int64(n))
		return n, u.failed(err)
	}
	buf := getBuffer()
	defer putBuffer(buf)
	written := 0
	for len(p) > 0 {
		n := min(len(p), len(*buf)-1)
		if _, err := u.put(u.ascii.convert((*buf)[:0], p[:n])); err != nil {
			return written, u.failed(err)
		}
		u.received.Add(int64(n))
		written += n
		p = p[n:]
	}
	return written, nil
}

// put writes to the temporary.
func (u *Upload) put(p []byte) (int, error) {
	if err := u.tree.sys.check("write"); err != nil {
		return 0, err
	}
	n, err := u.file.Write(p)
	u.size.Add(int64(n))
	return n, bare(err)
}

// dirty is said before the content changes.
func (u *Upload) dirty() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.whole = false
	if u.over {
		return ErrDone
	}
	return u.brokenLocked()
}

func (u *Upload) brokenLocked() error {
	if u.broken != nil {
		return &marked{ErrBroken, u.broken}
	}
	return nil
}

// failed remembers the first failure.
func (u *Upload) failed(err error) error {
	if err == nil {
		return nil
	}
	err = bare(err)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.broken == nil {
		u.broken = err
	}
	return err
}

// ReadFrom adds everything from r until EOF, paced if r is a connection, and returns how many bytes came from
// the wire. In binary from a plain connection they go to the file within the kernel (splice).
// After a failure, the connection's too, the upload can only be discarded or kept.
func (u *Upload) ReadFrom(r io.Reader) (int64, error) {
	before := u.received.Load()
	err := u.dirty()
	if err == nil {
		if u.ascii == nil && splices(r) {
			err = u.splice(r)
		} else {
			err = u.copyIn(r)
		}
		err = u.failed(err)
	}
	return u.received.Load() - before, fail("upload", u.Name(), err)
}

// spliceChunk is how much one call may move before it is looked at whether that was all.
const spliceChunk = 8 << 20

func (u *Upload) splice(r io.Reader) error {
	pace := newSteps(r, u.opt.Pace)
	defer pace.stop()
	for {
		if err := u.tree.sys.check("write"); err != nil {
			return err
		}
		pace.next()
		n, err := u.file.ReadFrom(&io.LimitedReader{R: r, N: spliceChunk})
		u.received.Add(n)
		u.size.Add(n)
		ended := err == nil && n < spliceChunk
		if err = pace.done(n, err); err != nil || ended {
			return err
		}
	}
}

func (u *Upload) copyIn(r io.Reader) error {
	buf := getBuffer()
	defer putBuffer(buf)
	pace := newSteps(r, u.opt.Pace)
	defer pace.stop()
	for {
		pace.next()
		n, err := r.Read((*buf)[1:])
		if n > 0 {
			piece := (*buf)[1 : 1+n]
			u.received.Add(int64(n))
			if u.ascii != nil { // in place: there is room before it for the CR that may have been held back
				piece = u.ascii.convert((*buf)[:0], piece)
			}
			if _, err := u.put(piece); err != nil {
				return err
			}
		}
		if err == io.EOF {
			pace.done(int64(n), nil)
			return nil
		}
		if err = pace.done(int64(n), err); err != nil {
			return err
		}
	}
}

// String names the upload for logs.
func (u *Upload) String() string {
	return fmt.Sprintf("upload to %q, %d bytes", u.Name(), u.Size())
}
