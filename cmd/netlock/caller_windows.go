package main

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/windows"
)

// watch waits for the end of the parent. On Windows, a pipe reports that its reader has closed it only to a write: the next dot finds out.
type watch struct {
	parent windows.Handle // 0: it has ended
}

func newWatch() *watch { return &watch{openParent()} }

// openParent returns a handle of the parent process, or 0 if it has ended. Windows gives the ids of processes again: a process that began after
// this one is not its parent.
func openParent() windows.Handle {
	parent, err := windows.OpenProcess(windows.SYNCHRONIZE|windows.PROCESS_QUERY_LIMITED_INFORMATION, false, uint32(os.Getppid()))
	if err != nil {
		return 0
	}
	theirs, err := startTime(parent)
	if err == nil {
		var ours windows.Filetime
		if ours, err = startTime(windows.CurrentProcess()); err == nil && theirs.Nanoseconds() <= ours.Nanoseconds() {
			return parent
		}
	}
	_ = windows.CloseHandle(parent)
	return 0
}

func startTime(process windows.Handle) (windows.Filetime, error) {
	var created, exited, kernel, user windows.Filetime
	err := windows.GetProcessTimes(process, &created, &exited, &kernel, &user)
	return created, err
}

func (w *watch) poll() string {
	which, err := windows.WaitForSingleObject(w.parent, uint32(pollTime.Milliseconds()))
	switch {
	case err != nil: // there is no parent
		time.Sleep(pollTime)
	case which == windows.WAIT_OBJECT_0:
		return parentEnded
	}
	return ""
}

// cannotDetectEnd reports whether there is no parent and standard output is no pipe.
func (w *watch) cannotDetectEnd() bool {
	if w.parent != 0 {
		return false
	}
	kind, err := windows.GetFileType(windows.Stdout)
	return err != nil || kind != windows.FILE_TYPE_PIPE
}

// readerGone reports whether a write failed because the reader of a pipe has closed it.
func readerGone(err error) bool {
	return errors.Is(err, windows.ERROR_BROKEN_PIPE) || errors.Is(err, windows.ERROR_NO_DATA)
}
