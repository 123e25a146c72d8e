package main

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/windows"
)

// watch waits for the end of the parent. Windows tells nobody that the other end of a pipe was closed until something
// is written to it: the dots see to that.
type watch struct {
	parent windows.Handle // 0: it had ended before
}

func newWatch() *watch { return &watch{openParent()} }

// openParent returns a handle of the process that started us, or 0: process ids are used again, so one that began after us is another.
func openParent() windows.Handle {
	parent, err := windows.OpenProcess(windows.SYNCHRONIZE|windows.PROCESS_QUERY_LIMITED_INFORMATION, false, uint32(os.Getppid()))
	if err != nil {
		return 0
	}
	theirs, err := began(parent)
	if err == nil {
		var ours windows.Filetime
		if ours, err = began(windows.CurrentProcess()); err == nil && theirs.Nanoseconds() <= ours.Nanoseconds() {
			return parent
		}
	}
	_ = windows.CloseHandle(parent)
	return 0
}

func began(process windows.Handle) (windows.Filetime, error) {
	var created, exited, kernel, user windows.Filetime
	err := windows.GetProcessTimes(process, &created, &exited, &kernel, &user)
	return created, err
}

func (w *watch) look() string {
	which, err := windows.WaitForSingleObject(w.parent, uint32(lookFor.Milliseconds()))
	switch {
	case err != nil: // there is none
		time.Sleep(lookFor)
	case which == windows.WAIT_OBJECT_0:
		return parentEnded
	}
	return ""
}

// blind: pipes tell with the next dot.
func (w *watch) blind() bool {
	if w.parent != 0 {
		return false
	}
	kind, err := windows.GetFileType(windows.Stdout)
	return err != nil || kind != windows.FILE_TYPE_PIPE
}

// readerGone tells a closed pipe from what else can keep us from writing.
func readerGone(err error) bool {
	return errors.Is(err, windows.ERROR_BROKEN_PIPE) || errors.Is(err, windows.ERROR_NO_DATA)
}

// hasRoom is always true: such a write can wait as long as nobody reads.
func hasRoom(*os.File) bool { return true }

// umask is nothing on Windows.
func umask() fs.FileMode { return 0 }
