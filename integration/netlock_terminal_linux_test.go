package integration

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
	"golang.org/x/sys/unix"
)

// terminal is a terminal of a test.
type terminal struct {
	t     testing.TB
	keys  *os.File
	shown *harness.LogBuffer // with the echo of the keys
}

// onTerminal starts a program in a session of its own that a terminal controls.
func onTerminal(t testing.TB, cmd *exec.Cmd) *terminal {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		harness.Missing(t, "no terminals: "+err.Error())
	}
	number, err := unlock(keys)
	if err != nil {
		t.Fatal(err)
	}
	screen, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = screen, screen, screen
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	screen.Close()
	tty := &terminal{t, keys, harness.NewLogBuffer()}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(tty.shown, keys) // ends with EIO when no process has the screen open
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // the end of the session hangs up on all that belongs to it
		_ = cmd.Wait()
		keys.Close()
		<-read
	})
	return tty
}

// unlock makes the other end of a new terminal usable, and returns its number. Close still ends a read of the file.
func unlock(keys *os.File) (number int, err error) {
	raw, err := keys.SyscallConn()
	if err != nil {
		return 0, err
	}
	var ierr error
	err = raw.Control(func(fd uintptr) {
		if number, ierr = unix.IoctlGetInt(int(fd), unix.TIOCGPTN); ierr == nil {
			ierr = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0)
		}
	})
	return number, errors.Join(err, ierr)
}
