package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// child is a command in a job of its own. The processes that it starts are in the job, too.
type child struct {
	process *os.Process
	job     windows.Handle
	events  chan childEvent
	waited  chan struct{}
}

// childEvent reports that a command ended; only other systems set the signals.
type childEvent struct {
	status  int
	signal  os.Signal
	stopped os.Signal
}

// startChild starts a command, suspended until it is in its job. Windows ends the job when netlock ends, also if it is killed.
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

// enter puts a suspended process into the job and resumes it.
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

// resume resumes the only thread of a process. Package os does not return its handle.
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

// close does not end the processes that the command has left running.
func (c *child) close() {
	<-c.waited
	_ = limit(c.job, 0)
	_ = windows.CloseHandle(c.job)
}

// groupID returns the id of the process group.
func (c *child) groupID() int { return c.process.Pid }

// terminate sends Ctrl-Break to the command's process group: Windows has no SIGTERM.
func (c *child) terminate() {
	_ = windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(c.process.Pid))
}

func (c *child) kill() { _ = windows.TerminateJobObject(c.job, exitLost) }

// groupAlive returns true: kill ends the job when the time is over.
func (c *child) groupAlive() bool { return true }

// forward ends the command: all signals of Windows mean that.
func (c *child) forward(os.Signal) { c.terminate() }

func (c *child) suspend(os.Signal) {}

func (c *child) hasKey(os.Signal) bool { return false }

// forwardedSignals returns the signals that netlock passes on to the command.
func forwardedSignals() []os.Signal { return endSignals() }
