package files

import (
	"math"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// unacknowledged returns how many bytes a socket sent, or is to send, that the peer did not acknowledge.
func unacknowledged(rc syscall.RawConn) (n int, ok bool) {
	err := rc.Control(func(fd uintptr) {
		var e error
		n, e = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
		ok = e == nil
	})
	return n, ok && err == nil
}

// sendChunk is how much one sendfile may send before other goroutines have their turn.
const sendChunk = 4 << 20

// sendfile sends a file from offset on to a socket without a copy through this process, and returns how
// far it came. moved is added to at each step. With ok false the kernel cannot do it with these two, and nothing was sent.
func sendfile(rc, file syscall.RawConn, offset int64, moved *atomic.Int64) (end int64, ok bool, err error) {
	end, ok = offset, true
	var failed error
	outer := file.Control(func(in uintptr) {
		err = rc.Write(func(out uintptr) bool {
			for {
				n, e := unix.Sendfile(int(out), int(in), &end, int(min(sendChunk, math.MaxInt64-end)))
				if n > 0 {
					moved.Add(int64(n))
				}
				switch {
				case e == unix.EINTR || e == nil && n > 0:
					continue
				case e == unix.EAGAIN:
					return false
				}
				failed = e
				return true // the end, or an error
			}
		})
	})
	if (failed == unix.EINVAL || failed == unix.ENOSYS || failed == unix.EOPNOTSUPP) && end == offset {
		return offset, false, nil
	}
	for _, e := range []error{outer, failed, err} {
		if e != nil {
			return end, true, e
		}
	}
	return end, true, nil
}
