package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// child is a command in a job of its own, which all that it starts is part of.
type child struct {
	process *os.Process
	job     windows.Handle
	events  chan childEvent
	waited  chan struct{}
}

// childEvent is the end of a command; stopped is of other systems.
type childEvent struct {
	status  int
	stopped os.Signal
}

// startChild starts a command, suspended until it is in its job. The job ends with us, also if we are killed.
func startChild(path string, argv, env []string) (*child, error) {
	job, err := newJob()
	if err != nil {
		return nil, err
	}
	p, err := os.StartProcess(path, argv, &os.ProcAttr{
		Env: env, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys: &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.CREATE_SUSPENDED},
	})
	if err != nil {
		return nil, errors.Join(err, windows.CloseHandle(job))
	}
	if err := enter(job, uint32(p.Pid)); err != nil {
		kerr := p.Kill()
		_, werr := p.Wait()
		return nil, errors.Join(fmt.Errorf("job: %w", err), kerr, werr, windows.CloseHandle(job))
	}
	c := &child{process: p, job: job, events: make(chan childEvent), waited: make(chan struct{})}
	go c.wait()
	return c, nil
}

func newJob() (windows.Handle, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return 0, err
	}
	if err := limit(job, windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE); err != nil {
		return 0, errors.Join(err, windows.CloseHandle(job))
	}
	return job, nil
}

func limit(job windows.Handle, flags uint32) error {
	info := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{
		BasicLimitInformation: windows.JOBOBJECT_BASIC_LIMIT_INFORMATION{LimitFlags: flags},
	}
	_, err := windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)))
	return err
}

// enter puts a suspended process into the job and lets it run.
func enter(job windows.Handle, pid uint32) error {
	process, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, pid)
	if err != nil {
		return err
	}
	defer windows.CloseHandle(process)
	if err := windows.AssignProcessToJobObject(job, process); err != nil {
		return err
	}
	return resume(pid)
}

// resume lets the only thread of a process run. Its handle is not to be had from package os.
func resume(pid uint32) error {
	all, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPTHREAD, 0)
	if err != nil {
		return err
	}
	defer windows.CloseHandle(all)
	entry := windows.ThreadEntry32{Size: uint32(unsafe.Sizeof(windows.ThreadEntry32{}))}
	for err = windows.Thread32First(all, &entry); err == nil; err = windows.Thread32Next(all, &entry) {
		if entry.OwnerProcessID != pid {
			continue
		}
		thread, err := windows.OpenThread(windows.THREAD_SUSPEND_RESUME, false, entry.ThreadID)
		if err != nil {
			return err
		}
		_, err = windows.ResumeThread(thread)
		return errors.Join(err, windows.CloseHandle(thread))
	}
	return err
}

func (c *child) wait() {
	defer close(c.waited)
	state, err := c.process.Wait()
	if err != nil {
		c.events <- childEvent{status: exitInternal}
		return
	}
	c.events <- childEvent{status: state.ExitCode()}
}

// close leaves what the command has left running alone.
func (c *child) close() {
	<-c.waited
	_ = limit(c.job, 0)
	_ = windows.CloseHandle(c.job)
}

// number is that of the process group.
func (c *child) number() int { return c.process.Pid }

// terminate presses Ctrl-Break for the command's process group: there is no SIGTERM.
func (c *child) terminate() {
	_ = windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(c.process.Pid))
}

func (c *child) kill() { _ = windows.TerminateJobObject(c.job, exitLost) }

// anybody is true: what is left when the time is over is ended.
func (c *child) anybody() bool { return true }

// pass gives on what there is of signals: all of them mean an end.
func (c *child) pass(os.Signal) { c.terminate() }

func (c *child) suspend(os.Signal) {}

// forwarded are the signals that are passed on to the command.
func forwarded() []os.Signal { return endings() }
