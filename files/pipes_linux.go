package files

import (
	"errors"
	"sync"

	"golang.org/x/sys/unix"
)

// How much a pipe holds, how many are lent at once, and how many are kept for the next uploads. At the usual 64 KiB it costs more to
// splice than to read and write.
const (
	pipeSize = 1 << 20
	maxPipes = 16
	maxIdle  = 4
)

// pipes are lent to uploads, each for as long as bytes are on their way through it. What is left in the pipe of an upload that failed
// must not get into another one's file: only an empty pipe is lent again. The zero value is ready.
type pipes struct {
	mu     sync.Mutex
	idle   []*pipe
	lent   int
	closed bool
}

// take lends an empty pipe, to be given back by put. It is nil if there are as many in use as may be, and with an error if the system
// refuses one.
func (p *pipes) take() (*pipe, error) {
	one, ok := p.kept()
	if one != nil || !ok {
		return one, nil
	}
	one, err := newPipe()
	if err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.lent--
		return nil, err
	}
	return one, nil
}

// kept counts one more that is lent, if there may be one more, and returns it if there is one.
func (p *pipes) kept() (one *pipe, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lent == maxPipes {
		return nil, false
	}
	p.lent++
	if n := len(p.idle); n > 0 {
		one, p.idle = p.idle[n-1], p.idle[:n-1]
	}
	return one, true
}

// put takes a pipe back. One with something in it is closed.
func (p *pipes) put(one *pipe) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lent--
	if p.closed || one.held != 0 || len(p.idle) == maxIdle {
		one.close()
		return
	}
	p.idle = append(p.idle, one)
}

// close closes those that are not lent; those that are, when they come back.
func (p *pipes) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	var errs []error
	for _, one := range p.idle {
		errs = append(errs, one.close())
	}
	p.idle = nil
	return errors.Join(errs...)
}

// pipe holds pipeSize. It is for whom it is lent to.
type pipe struct {
	r, w int
	held int // bytes in it
}

func newPipe() (*pipe, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, err
	}
	p := &pipe{r: fds[0], w: fds[1]}
	if _, err := unix.FcntlInt(uintptr(p.w), unix.F_SETPIPE_SZ, pipeSize); err != nil { // too much for this user
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *pipe) close() error { return errors.Join(unix.Close(p.r), unix.Close(p.w)) }

// fill moves what has come on a socket into the pipe, which is empty. EAGAIN: nothing has.
func (p *pipe) fill(sock int) (int, error) {
	n, err := splice(sock, p.w, pipeSize)
	p.held += n
	return n, err
}

// drain moves what is in the pipe, or some of it, to where the file is written next.
func (p *pipe) drain(file int) (int, error) {
	n, err := splice(p.r, file, p.held)
	p.held -= n
	return n, err
}

// read takes out what is in the pipe, or some of it.
func (p *pipe) read(b []byte) (n int, err error) {
	err = retry(func() (e error) {
		n, e = unix.Read(p.r, b)
		return e
	})
	n = max(n, 0)
	p.held -= n
	return n, err
}

// splice moves up to most bytes, and does not wait for a pipe or a socket.
func splice(from, to, most int) (int, error) {
	var n int64
	err := retry(func() (e error) {
		n, e = unix.Splice(from, nil, to, nil, most, unix.SPLICE_F_NONBLOCK)
		return e
	})
	return int(max(n, 0)), err
}
