package powerloss

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// call is a system call that has succeeded.
type call struct {
	pid    int // the thread
	number uint64
	args   [6]uint64
	result int64
}

// trace runs a prepared command to its end, for a minute at most, and calls each for every system call of its threads that succeeded,
// while the thread is stopped. An error of each kills the process.
func trace(cmd *exec.Cmd, each func(call) error) error {
	runtime.LockOSThread() // the tracer is a thread
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	pid := cmd.Process.Pid
	watchdog := time.AfterFunc(time.Minute, func() { _ = unix.Kill(pid, unix.SIGKILL) })
	t := tracer{leader: pid, each: each, entered: make(map[int]call), known: make(map[int]bool)}
	err := t.run()
	watchdog.Stop()
	return errors.Join(err, cmd.Process.Release())
}

// tracer follows the threads of one process.
type tracer struct {
	leader  int
	each    func(call) error
	entered map[int]call // by thread: its current call
	known   map[int]bool
	writer  int   // the thread with a call under way that may change the disk; 0: none
	waiting []int // the threads that are stopped before such a call
}

const traceOptions = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEFORK |
	unix.PTRACE_O_TRACEVFORK | unix.PTRACE_O_TRACEEXEC | unix.PTRACE_O_EXITKILL

func (t *tracer) run() error {
	var status unix.WaitStatus
	if _, err := unix.Wait4(t.leader, &status, unix.WALL, nil); err != nil {
		return fmt.Errorf("wait: %w", err)
	}
	if err := unix.PtraceSetOptions(t.leader, traceOptions); err != nil {
		return fmt.Errorf("ptrace: %w", err)
	}
	t.known[t.leader] = true
	if err := unix.PtraceSyscall(t.leader, 0); err != nil {
		return fmt.Errorf("ptrace: %w", err)
	}
	var failed error
	for {
		// Only children of this thread: the rest of the process waits for its own.
		pid, err := unix.Wait4(-1, &status, unix.WALL|unix.WNOTHREAD, nil)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return errors.Join(failed, fmt.Errorf("wait: %w", err))
		case status.Exited() || status.Signaled():
			if pid != t.leader {
				if err := t.releaseWriter(pid); err != nil {
					return errors.Join(failed, err)
				}
				continue
			}
			if failed == nil && (!status.Exited() || status.ExitStatus() != 0) {
				failed = fmt.Errorf("the process ended with %v, status %d", status.Signal(), status.ExitStatus())
			}
			return failed
		case !status.Stopped():
			continue
		}
		signal, err := t.stopped(pid, status)
		if err != nil && failed == nil {
			failed = err
			_ = unix.Kill(t.leader, unix.SIGKILL)
		}
		if c, ok := t.entered[pid]; ok && changes(c.number) && failed == nil && t.writer != pid {
			if t.writer != 0 {
				t.waiting = append(t.waiting, pid)
				continue
			}
			t.writer = pid
		} else if !ok {
			if err := t.releaseWriter(pid); err != nil {
				return errors.Join(failed, err)
			}
		}
		if err := resume(pid, signal); err != nil {
			return errors.Join(failed, err)
		}
	}
}

// releaseWriter resumes the next thread that waits to change the disk. One thread changes it at a time, so the order of changes and syncs is certain.
func (t *tracer) releaseWriter(pid int) error {
	if t.writer != pid {
		return nil
	}
	if t.writer = 0; len(t.waiting) == 0 {
		return nil
	}
	t.writer, t.waiting = t.waiting[0], t.waiting[1:]
	return resume(t.writer, 0)
}

func resume(pid, signal int) error {
	if err := unix.PtraceSyscall(pid, signal); err != nil && err != unix.ESRCH { // ESRCH: it is being killed
		return fmt.Errorf("ptrace: %w", err)
	}
	return nil
}

// changes reports whether a call may change or sync the disk. None of these calls waits for another thread.
func changes(number uint64) bool {
	switch number {
	case unix.SYS_WRITE, unix.SYS_PWRITE64, unix.SYS_FSYNC, unix.SYS_FDATASYNC, unix.SYS_OPENAT, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2,
		unix.SYS_UNLINKAT, unix.SYS_MKDIRAT, unix.SYS_LINKAT, unix.SYS_TRUNCATE, unix.SYS_FTRUNCATE:
		return true
	}
	return false
}

// stopped handles the stop of a thread, and returns the signal to deliver to it.
func (t *tracer) stopped(pid int, status unix.WaitStatus) (signal int, err error) {
	isNew := !t.known[pid]
	t.known[pid] = true
	switch stop := status.StopSignal(); {
	case stop == unix.SIGTRAP|0x80:
		return 0, t.call(pid)
	case stop == unix.SIGTRAP: // an event of the trace options
		return 0, nil
	case stop == unix.SIGSTOP && isNew: // how a new thread begins
		return 0, nil
	default:
		return int(stop), nil
	}
}

// The result of PTRACE_GET_SYSCALL_INFO, see ptrace(2).
type syscallInfo struct {
	op     uint8
	_      [3]uint8
	_      uint32
	_, _   uint64
	number uint64 // of an exit: the result
	args   [6]uint64
	_      [2]uint64
}

const (
	infoEntry = 1
	infoExit  = 2
)

func (t *tracer) call(pid int) error {
	var info syscallInfo
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(pid), unsafe.Sizeof(info),
		uintptr(unsafe.Pointer(&info)), 0, 0)
	switch {
	case errno == unix.ESRCH:
		return nil
	case errno != 0:
		return fmt.Errorf("ptrace: %w", errno)
	case info.op == infoEntry:
		t.entered[pid] = call{pid: pid, number: info.number, args: info.args}
		return nil
	case info.op != infoExit:
		return nil
	}
	c, ok := t.entered[pid]
	delete(t.entered, pid)
	if c.result = int64(info.number); !ok || c.result < 0 {
		return nil
	}
	return t.each(c)
}

// descriptor returns the inode and the path of an open file of a thread; "" if they cannot be read.
func descriptor(pid int, fd uint64) (inode uint64, path string) {
	name := fmt.Sprintf("/proc/%d/fd/%d", pid, int32(fd))
	var stat unix.Stat_t
	if unix.Stat(name, &stat) != nil {
		return 0, ""
	}
	path, err := os.Readlink(name)
	if err != nil {
		return 0, ""
	}
	return stat.Ino, path
}
