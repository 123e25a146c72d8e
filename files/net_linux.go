package files

import (
	"cmp"
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

// sendfile sends a file from offset to its end to a socket without a copy through this process, and returns how
// far it came. moved is added to at each step. With ok false the kernel cannot do it with these two, and nothing was sent.
// What is added to the file meanwhile may be sent or not.
func sendfile(rc syscall.RawConn, file *regular, offset int64, moved *atomic.Int64) (end int64, ok bool, err error) {
	end = offset
	var failed error
	err = rc.Write(func(out uintptr) bool {
		for {
			n := 0
			failed = file.use(func(in int) (e error) {
				n, e = unix.Sendfile(int(out), in, &end, int(min(sendChunk, math.MaxInt64-end)))
				return e
			})
			moved.Add(int64(max(n, 0)))
			switch {
			case failed == unix.EINTR:
			case failed == unix.EAGAIN:
				failed = nil
				return false
			case failed != nil || n == 0 || end == file.size:
				return true
			}
		}
	})
	if (failed == unix.EINVAL || failed == unix.ENOSYS || failed == unix.EOPNOTSUPP) && end == offset {
		return offset, false, nil
	}
	return end, true, cmp.Or(failed, err)
}
