package driver

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// timers has the timers that no pause uses. The garbage collector closes those that it removes.
var timers = sync.Pool{New: func() any {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return (*os.File)(nil)
	}
	return os.NewFile(uintptr(fd), "timerfd")
}}

// pause waits for d, to about 0.1 ms. When the process is idle, the runtime rounds its own timers up to milliseconds: time.Sleep of 2 ms
// takes 2.35 ms and more.
func pause(d time.Duration) {
	if d <= 0 {
		return
	}
	began := time.Now()
	if timer := timers.Get().(*os.File); timer != nil {
		defer timers.Put(timer)
		if raw, err := timer.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) {
				_ = unix.TimerfdSettime(int(fd), 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}, nil)
			})
			var expired [8]byte
			_, _ = timer.Read(expired[:]) // the goroutine waits, no thread
		}
	}
	time.Sleep(d - time.Since(began)) // all of d if there is no timer
}
