package main

import (
	"errors"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/windows"
)

// watch waits for the end of the parent. Windows tells nobody that the other end of a pipe was closed until something
// is written to it: the dots see to that.
type watch struct {
	parent windows.Handle // 0: it had ended before
	stop   windows.Handle // an event

	mu    sync.Mutex
	input bool // standard input has ended
}

func newWatch(stdin bool) (*watch, error) {
	stop, err := windows.CreateEvent(nil, 1, 0, nil)
	if err != nil {
		return nil, err
	}
	w := &watch{stop: stop, parent: openParent()}
	if stdin {
		go w.readInput()
	}
	return w, nil
}

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

// readInput ends with the input or with the process: nothing on Windows ends the reading of a pipe for certain.
func (w *watch) readInput() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.input = true
	if w.stop != 0 {
		_ = windows.SetEvent(w.stop)
	}
}

func (w *watch) wait() string {
	handles := []windows.Handle{w.stop}
	if w.parent != 0 {
		handles = append(handles, w.parent)
	}
	which, err := windows.WaitForMultipleObjects(handles, false, windows.INFINITE)
	if err == nil && which == windows.WAIT_OBJECT_0+1 {
		return parentEnded
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.input {
		return stdinClosed
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

func (w *watch) interrupt() { _ = windows.SetEvent(w.stop) }

func (w *watch) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = windows.CloseHandle(w.stop)
	w.stop = 0
	if w.parent != 0 {
		_ = windows.CloseHandle(w.parent)
	}
}

// hasRoom is always true: such a write can wait as long as nobody reads.
func hasRoom(*os.File) bool { return true }
