package integration

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

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

// types writes keys. A busy kernel can lose ^C or ^Z: it then echoes nothing, and types presses the key again.
func (tty *terminal) types(keys string) error {
	if keys[0] >= ' ' {
		_, err := io.WriteString(tty.keys, keys)
		return err
	}
	echo := "^" + string(keys[0]|0x40)
	before := strings.Count(tty.shown.String(), echo)
	for range 10 {
		if _, err := io.WriteString(tty.keys, keys); err != nil {
			return err
		}
		for range 500 {
			if strings.Count(tty.shown.String(), echo) > before {
				return nil
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	return errors.New(echo + " has no echo")
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
