package files

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
)

// Name returns the FTP path that the file will have, or has since Place. It changes if a directory above
// it is renamed through the tree meanwhile.
func (u *Upload) Name() string { return u.tree.uploads.nameOf(u) }

// Durable reports whether Sync and Last wait for the disk.
func (u *Upload) Durable() bool { return u.set.durable }

// Size returns how long the file is so far, copied old content included. A ReadFrom counts when it returns.
func (u *Upload) Size() int64 { return u.size.Load() }

// Write adds bytes to the file. After a failure the upload can only be discarded.
func (u *Upload) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, err := u.add(func() (int64, error) {
		n, err := u.file.Write(p)
		return int64(n), err
	})
	return int(n), err
}

// ReadFrom adds everything from r until EOF. What comes from a *net.TCPConn goes into the file within the kernel (splice).
// After a failure, one of r too, the upload can only be discarded.
func (u *Upload) ReadFrom(r io.Reader) (int64, error) {
	return u.add(func() (int64, error) { return u.file.ReadFrom(r) })
}

// add calls write, which adds bytes to the temporary, and counts them.
func (u *Upload) add(write func() (int64, error)) (n int64, err error) {
	if err = u.open(); err != nil {
		return 0, fail("upload", u.Name(), err)
	}
	if err = u.tree.check("write"); err == nil {
		n, err = write()
	}
	u.size.Add(n)
	return n, fail("upload", u.Name(), u.failed(err))
}

// open fails if the content cannot change any more, or with what failed before.
func (u *Upload) open() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.whole {
		return ErrDone
	}
	return u.standsLocked()
}

// standsLocked fails if the upload is over, or with what failed before.
func (u *Upload) standsLocked() error {
	if u.over || u.placed {
		return ErrDone
	}
	return u.broken
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

// Sum returns how long the content is so far, and its SHA-256 in hexadecimal. It reads the content back, so that receiving
// it can be left to the kernel; what came just now is still in memory.
func (u *Upload) Sum() (size int64, sum string, err error) {
	if err = u.open(); err != nil {
		return 0, "", fail("sum", u.Name(), err)
	}
	h := sha256.New()
	if size, err = io.Copy(h, io.NewSectionReader(u.file, 0, u.Size())); err != nil {
		return 0, "", fail("sum", u.Name(), err)
	}
	return size, hex.EncodeToString(h.Sum(nil)), nil
}
