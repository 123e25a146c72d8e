//go:build linux

// Package raw is blocking TCP on 127.0.0.1 and files with system calls that Go's runtime is not told of: as a C program
// makes them. No scheduler, no poller and no sysmon takes part, and none is woken by them.
//
// A caller that blocks keeps its thread and its right to run Go code, so there must be as many of these (GOMAXPROCS) as
// block at the same time, and the collector must be off: it would wait for them. Nothing here allocates, locks or starts anything,
// which is why a process may go on with it after [Fork].
//
// Paths end with a NUL byte. An error is the system's number; 0 is none.
package raw

import (
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Read reads some bytes; none is the end.
func Read(fd int, p []byte) (int, syscall.Errno) {
	for {
		n, _, err := syscall.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
		if err == 0 {
			return int(n), 0
		}
		if err != unix.EINTR {
			return 0, err
		}
	}
}

// Write writes all bytes.
func Write(fd int, p []byte) syscall.Errno {
	for len(p) > 0 {
		n, _, err := syscall.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
		switch err {
		case 0:
			p = p[n:]
		case unix.EINTR:
		default:
			return err
		}
	}
	return 0
}

// Close closes a descriptor. What is written was written before: it does not fail.
func Close(fd int) { _, _, _ = syscall.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0) }

// Dial connects to a port.
func Dial(port int) (fd int, err syscall.Errno) {
	if fd, err = socket(); err != 0 {
		return fd, err
	}
	at := loopback(port)
	if _, _, err = syscall.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&at)), unix.SizeofSockaddrInet4); err != 0 {
		Close(fd)
	}
	return fd, err
}

// Listen listens on a port; on one that the system chooses if it is 0. A port that connections which ended still stand for is
// as good as any.
func Listen(port, backlog int) (fd int, err syscall.Errno) {
	if fd, err = socket(); err != 0 {
		return fd, err
	}
	err = set(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR)
	at := loopback(port)
	if err == 0 {
		_, _, err = syscall.RawSyscall(unix.SYS_BIND, uintptr(fd), uintptr(unsafe.Pointer(&at)), unix.SizeofSockaddrInet4)
	}
	if err == 0 {
		_, _, err = syscall.RawSyscall(unix.SYS_LISTEN, uintptr(fd), uintptr(backlog), 0)
	}
	if err != 0 {
		Close(fd)
	}
	return fd, err
}

// Accept takes the next connection.
func Accept(listener int) (fd int, err syscall.Errno) {
	for {
		n, _, err := syscall.RawSyscall6(unix.SYS_ACCEPT4, uintptr(listener), 0, 0, 0, 0, 0)
		if err != unix.EINTR {
			return int(n), err
		}
	}
}

// Port returns the port of a socket.
func Port(fd int) (int, syscall.Errno) {
	var at syscall.RawSockaddrInet4
	size := uint32(unix.SizeofSockaddrInet4)
	_, _, err := syscall.RawSyscall(unix.SYS_GETSOCKNAME, uintptr(fd), uintptr(unsafe.Pointer(&at)), uintptr(unsafe.Pointer(&size)))
	port := (*[2]byte)(unsafe.Pointer(&at.Port))
	return int(port[0])<<8 | int(port[1]), err
}

// NoDelay has each write sent at once.
func NoDelay(fd int) syscall.Errno { return set(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY) }

func set(fd, level, option int) syscall.Errno {
	one := int32(1)
	_, _, err := syscall.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option), uintptr(unsafe.Pointer(&one)), 4, 0)
	return err
}

func socket() (fd int, err syscall.Errno) {
	n, _, err := syscall.RawSyscall(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM, 0)
	return int(n), err
}

func loopback(port int) syscall.RawSockaddrInet4 {
	at := syscall.RawSockaddrInet4{Family: unix.AF_INET, Addr: [4]byte{127, 0, 0, 1}}
	*(*[2]byte)(unsafe.Pointer(&at.Port)) = [2]byte{byte(port >> 8), byte(port)} // in the order of the network
	return at
}

// Open opens a file.
func Open(path []byte, flags int) (fd int, err syscall.Errno) {
	n, _, err := syscall.RawSyscall6(unix.SYS_OPENAT, here, uintptr(unsafe.Pointer(&path[0])), uintptr(flags), 0o644, 0, 0)
	return int(n), err
}

// here is the working directory, AT_FDCWD.
const here = ^uintptr(99)

// Rename renames a file over what is there.
func Rename(from, to []byte) syscall.Errno {
	_, _, err := syscall.RawSyscall6(unix.SYS_RENAMEAT2, here, uintptr(unsafe.Pointer(&from[0])), here, uintptr(unsafe.Pointer(&to[0])), 0, 0)
	return err
}

// Remove removes a file.
func Remove(path []byte) syscall.Errno {
	_, _, err := syscall.RawSyscall(unix.SYS_UNLINKAT, here, uintptr(unsafe.Pointer(&path[0])), 0)
	return err
}

// Size returns that of an open file.
func Size(fd int) (int64, syscall.Errno) {
	var s syscall.Stat_t
	_, _, err := syscall.RawSyscall(unix.SYS_FSTAT, uintptr(fd), uintptr(unsafe.Pointer(&s)), 0)
	return s.Size, err
}

// Send sends so many bytes of a file to a connection.
func Send(to, file int, size int64) syscall.Errno {
	for size > 0 {
		n, _, err := syscall.RawSyscall6(unix.SYS_SENDFILE, uintptr(to), uintptr(file), 0, uintptr(size), 0, 0)
		switch {
		case err == unix.EINTR:
		case err != 0:
			return err
		case n == 0:
			return unix.EIO // it has become shorter
		default:
			size -= int64(n)
		}
	}
	return 0
}

// BlockSignals keeps all signals from the calling thread, which is to be locked to its goroutine: those by which the
// runtime asks goroutines to make room would break system calls off.
func BlockSignals() syscall.Errno {
	all := ^uint64(0)
	_, _, err := syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&all)), 0, 8, 0, 0)
	return err
}

// SleepUntil sleeps until a time of CLOCK_MONOTONIC.
func SleepUntil(monotonic time.Duration) {
	then := syscall.NsecToTimespec(int64(monotonic))
	for {
		_, _, err := syscall.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, uintptr(unsafe.Pointer(&then)), 0, 0, 0)
		if err != unix.EINTR {
			return
		}
	}
}
