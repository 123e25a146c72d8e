package files

import (
	"io"
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

// spliceAfter is how much of an upload is read and written before any of it is spliced: a small file has no use for a pipe.
const spliceAfter = 1 << 20

// spliceLeast is how much one step moves if it pays to splice the next: with less, in segments as they come from a network, it
// costs up to a tenth more than to read and write.
const spliceLeast = 128 << 10

// spliced is what the kernel moves of an upload, from the connection into a pipe and from there into the file, without a copy through
// this process. It never waits for the client, so that nobody has a pipe who has nothing to send: that is left to a Read.
type spliced struct {
	upload *Upload
	watch  *watch
	conn   syscall.RawConn // nil before the first step
	file   syscall.RawConn
	off    bool // it cannot be done, or not with these two
}

// start reports whether there is something to splice with.
func (s *spliced) start(r io.Reader) bool {
	if s.off || s.conn != nil {
		return !s.off
	}
	file, err := s.upload.file.SyscallConn()
	s.conn, s.file = plainConn(r), file
	s.off = s.upload.ascii != nil || s.conn == nil || err != nil
	return !s.off
}

// run moves what has come, and what comes meanwhile, for as long as that is much. All that it took from the connection is in the
// file, unless there is an error. What follows, the end of the connection too, is to be read.
func (s *spliced) run(buf []byte) error {
	p, err := s.upload.tree.pipes.take()
	if p == nil {
		s.off = err != nil
		return nil
	}
	defer s.upload.tree.pipes.put(p)
	for {
		n, err := s.fill(p)
		if n == 0 || err != nil {
			return err
		}
		s.watch.moved.Add(int64(n))
		s.upload.received.Add(int64(n))
		if err := s.drain(p, buf); err != nil {
			return err
		}
		if s.off || n < spliceLeast {
			return nil
		}
	}
}

// fill moves what has come into a pipe. 0 need not be the end of the connection: splice stops before urgent data, and says
// that the connection ended there if it ends anywhere behind.
func (s *spliced) fill(p *pipe) (n int, err error) {
	outer := s.conn.Read(func(fd uintptr) bool {
		if err = s.upload.tree.sys.check("splice from connection"); err == nil {
			n, err = p.fill(int(fd))
		}
		return true
	})
	switch {
	case outer != nil:
		return 0, outer
	case err == unix.EAGAIN:
		return 0, nil
	case cannotSplice(err):
		s.off = true
		return 0, nil
	}
	return n, err
}

// drain moves what is in a pipe into the file.
func (s *spliced) drain(p *pipe, buf []byte) error {
	for p.held > 0 {
		n, err := s.upload.putSpliced(s.file, p)
		switch {
		case cannotSplice(err) || err == nil && n == 0:
			s.off = true
			return s.rescue(p, buf)
		case err != nil:
			return err
		}
	}
	return nil
}

// rescue writes what is in a pipe and cannot be spliced to the file.
func (s *spliced) rescue(p *pipe, buf []byte) error {
	for p.held > 0 {
		n, err := p.read(buf)
		if err != nil {
			return err
		}
		if _, err := s.upload.put(buf[:n]); err != nil {
			return err
		}
	}
	return nil
}

// putSpliced is put for what is in a pipe, or some of it.
func (u *Upload) putSpliced(file syscall.RawConn, p *pipe) (n int, err error) {
	if err := u.tree.sys.check("write"); err != nil {
		return 0, err
	}
	if err := u.tree.sys.check("splice to file"); err != nil {
		return 0, err
	}
	outer := file.Control(func(fd uintptr) { n, err = p.drain(int(fd)) })
	if outer != nil {
		return 0, fs.ErrClosed // as a write says it, after a Discard from elsewhere
	}
	u.size.Add(int64(n))
	return n, err
}

// cannotSplice reports whether an error says nothing but that there is no splice: in the file system, in the kernel, or for this process.
func cannotSplice(err error) bool {
	return err == unix.EINVAL || err == unix.ENOSYS || err == unix.EOPNOTSUPP || err == unix.EPERM
}
