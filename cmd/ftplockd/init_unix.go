//go:build unix

package main

import (
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// supervise runs the same command line in a child process, for process 1 of a container. It passes signals on to the child, and reaps the processes
// that hooks left in the background: process 1 becomes their parent. Its error is the end of the child.
func supervise() error {
	signals := make(chan os.Signal, 64)
	signal.Notify(signals)
	program, err := os.Executable()
	if err != nil { // there is no /proc
		program, err = exec.LookPath(os.Args[0])
	}
	if err != nil {
		return err
	}
	child, err := syscall.ForkExec(program, os.Args, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{0, 1, 2},
		Sys: &syscall.SysProcAttr{Setpgid: true}, // a terminal sends its signals to process 1 only
	})
	if err != nil {
		return &os.PathError{Op: "start", Path: program, Err: err}
	}
	for s := range signals {
		switch s {
		case syscall.SIGCHLD:
			if end, ok := reap(child); ok {
				return end
			}
		case syscall.SIGURG, syscall.SIGPIPE: // of the Go runtime; of this process
		default:
			_ = syscall.Kill(child, s.(syscall.Signal)) // the child is not reaped yet, so the number is its own
		}
	}
	return nil
}

// reap reaps all children that have ended. ok means that the given one is among them.
func reap(child int) (end childEnd, ok bool) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil || pid == 0:
			return end, ok
		case pid == child && status.Signaled():
			end, ok = childEnd(128+status.Signal()), true // as in a shell
		case pid == child:
			end, ok = childEnd(status.ExitStatus()), true
		}
	}
}
