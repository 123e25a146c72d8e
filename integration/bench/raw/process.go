//go:build linux

package raw

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Fork makes the calling thread a process of its own as well, which gets 0. That has one thread and no Go runtime that could
// collect or wake anything: it may make system calls and compute, not more, and ends with [Exit]. It ends with its parent, too.
//
// GOMAXPROCS is 1 and the collector is off, so that no other thread is in the middle of anything that the child needs. The caller's
// goroutine is the only one that can run, for which it calls [runtime.Gosched] before, and it is not locked to its thread: sysmon
// may have asked it to make room just before the fork, and it gets its turn back at once; for a locked one other threads
// would have to see to that.
func Fork() (pid int, err syscall.Errno) {
	self, _, _ := syscall.RawSyscall(unix.SYS_GETPID, 0, 0, 0)
	n, _, err := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if err != 0 || n != 0 {
		return int(n), err
	}
	_, _, err = syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0, 0)
	if parent, _, _ := syscall.RawSyscall(unix.SYS_GETPPID, 0, 0, 0); err != 0 || parent != self {
		Exit(1) // it has ended before it could take its child with it
	}
	return 0, 0
}

// Exit ends the process.
func Exit(status int) {
	for {
		_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, uintptr(status), 0, 0)
	}
}

// Pause sleeps until the process is killed.
func Pause() {
	for {
		_, _, _ = syscall.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
	}
}

// CloseOthers closes all descriptors but one and the standard streams: those that the process was given without asking, too.
func CloseOthers(than int) {
	for _, r := range [...][2]uintptr{{3, uintptr(than) - 1}, {uintptr(than) + 1, uintptr(^uint32(0))}} {
		if r[0] <= r[1] {
			_, _, _ = syscall.RawSyscall(unix.SYS_CLOSE_RANGE, r[0], r[1], 0) // Linux 5.9
		}
	}
}

// Become makes a descriptor another name of an open one.
func Become(fd, of int) syscall.Errno {
	_, _, err := syscall.RawSyscall(unix.SYS_DUP3, uintptr(of), uintptr(fd), 0)
	return err
}
