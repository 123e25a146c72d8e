//go:build linux

package raw

import (
	"bytes"
	"syscall"

	"golang.org/x/sys/unix"
)

// Lines reads lines from a descriptor.
type Lines struct {
	FD     int
	buffer [4096]byte
	start  int
	end    int
}

// Next returns the next line with its end, valid until the next call. An end of input is ECONNRESET, a line
// that is too long is EMSGSIZE.
func (l *Lines) Next() ([]byte, syscall.Errno) {
	for {
		if i := bytes.IndexByte(l.buffer[l.start:l.end], '\n'); i >= 0 {
			line := l.buffer[l.start : l.start+i+1]
			l.start += i + 1
			return line, 0
		}
		l.end = copy(l.buffer[:], l.buffer[l.start:l.end])
		l.start = 0
		if l.end == len(l.buffer) {
			return nil, unix.EMSGSIZE
		}
		n, err := Read(l.FD, l.buffer[l.end:])
		if err != 0 {
			return nil, err
		}
		if n == 0 {
			return nil, unix.ECONNRESET
		}
		l.end += n
	}
}
