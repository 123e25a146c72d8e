package driver

import (
	"io"
	"time"
)

// chunk is how much of a listing or a note is written at a time: each is to move within the data timeout.
const chunk = 32 << 10

// paced puts a deadline ahead of each read and write of a connection. Files have a
// finer one (files.Pace); this is for what is made in memory, listings and notes.
type paced struct {
	conn    any // what has deadlines, if it has
	timeout time.Duration
}

func (p paced) read(r io.Reader) io.Reader {
	return readerFunc(func(b []byte) (int, error) {
		if c, ok := p.conn.(interface{ SetReadDeadline(time.Time) error }); ok && p.timeout > 0 {
			c.SetReadDeadline(time.Now().Add(p.timeout)) // an error shows at the read
		}
		return r.Read(b)
	})
}

func (p paced) write(w io.Writer, b []byte) (sent int64, err error) {
	for len(b) > 0 && err == nil {
		if c, ok := p.conn.(interface{ SetWriteDeadline(time.Time) error }); ok && p.timeout > 0 {
			c.SetWriteDeadline(time.Now().Add(p.timeout)) // an error shows at the write
		}
		var n int
		n, err = w.Write(b[:min(chunk, len(b))])
		b = b[n:]
		sent += int64(n)
	}
	return sent, err
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }
