package files

import (
	"errors"
	"fmt"
	"io"
)

// Name returns the FTP path that the file will have, or has since Publish. It changes if a directory above
// it is renamed through the tree meanwhile.
func (u *Upload) Name() string { return u.tree.reg.nameOf(u) }

// Received returns how many bytes came from the wire, before any conversion.
func (u *Upload) Received() int64 { return u.received.Load() }

// Durable reports whether Sync and Publish wait for the disk.
func (u *Upload) Durable() bool { return u.set.durable }

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
// the wire.
// After a failure, the connection's too, the upload can only be discarded or kept.
func (u *Upload) ReadFrom(r io.Reader) (int64, error) {
	before := u.received.Load()
	err := u.dirty()
	if err == nil {
		if err = u.copyIn(r); !errors.Is(err, ErrWouldWait) {
			err = u.failed(err)
		}
	}
	return u.received.Load() - before, fail("upload", u.Name(), err)
}

// copyIn passes what comes through this process, as much at a time as there is; but what comes of a large file in binary over a plain
// connection, faster than that, goes into the file within the kernel (splice).
func (u *Upload) copyIn(r io.Reader) error {
	buf := getBuffer()
	defer putBuffer(buf)
	watch := u.tree.beats.watchRead(r, u.opt.Pace)
	defer watch.stop()
	s := spliced{upload: u, watch: watch}
	for {
		n, err := r.Read((*buf)[1:])
		if n > 0 {
			watch.moved.Add(int64(n))
			piece := (*buf)[1 : 1+n]
			u.received.Add(int64(n))
			if u.ascii != nil { // in place: there is room before it for the CR that may have been held back
				piece = u.ascii.convert((*buf)[:0], piece)
			}
			if _, err := u.put(piece); err != nil {
				return err
			}
		}
		if err == nil && n == len(*buf)-1 && u.received.Load() >= spliceAfter && s.start(r) { // more has come already
			err = s.run(*buf)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// String names the upload for logs.
func (u *Upload) String() string {
	return fmt.Sprintf("upload to %q, %d bytes", u.Name(), u.Size())
}
