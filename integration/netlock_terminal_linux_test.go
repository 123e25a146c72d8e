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

	"github.com/ftplockd/ftplockd/integration/harness"
	"golang.org/x/sys/unix"
)

// terminal is a terminal at which the test types.
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

func (tty *terminal) types(text string) {
	tty.t.Helper()
	if _, err := io.WriteString(tty.keys, text); err != nil {
		tty.t.Fatal(err)
	}
}

// shows returns when a text is on the screen.
func (tty *terminal) shows(text string) {
	tty.t.Helper()
	tty.shown.Await(tty.t, text, 1)
}

// atShell prepares a shell that finds netlock.
func atShell(t testing.TB, s *server, args ...string) *exec.Cmd {
	t.Helper()
	cmd := caller(t, "sh", s.lockURL("phone_lock"), args...)
	cmd.Env = append(cmd.Env, "PS1=$ ", "ENV=")
	return cmd
}

func TestNetlockRunLendsItsTerminalToTheCommand(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	// A shell without job control does not give the terminal to netlock's next sibling: netlock must have taken it back.
	tty := onTerminal(t, atShell(t, s, "-c",
		`netlock run $URL -- sh -c 'sleep 100 & echo one-ready; read x; echo one-got-$x; kill $!'; echo two-ready; read y; echo two-got-$y`))
	tty.shows("one-ready")
	tty.types("it\n")
	tty.shows("one-got-it")
	tty.servesNextCommand()
}

// servesNextCommand checks that the shell's next command reads what is typed.
func (tty *terminal) servesNextCommand() {
	tty.t.Helper()
	tty.shows("two-ready")
	tty.types("more\n")
	tty.shows("two-got-more")
}

func TestNetlockRunTakesTheTerminalBackFromAProcessLeftRunning(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	tty := onTerminal(t, atShell(t, s, "-c",
		`netlock run $URL -- sh -c 'sleep 5 & echo one-ready'; echo two-ready; read y; echo two-got-$y`))
	tty.servesNextCommand()
}

func TestNetlockRunIsAJobLikeAnyOther(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	tty := onTerminal(t, atShell(t, s, "-i"))
	tty.shows("$ ")
	tty.types("netlock run $URL -- sh -c 'echo it-is-\"\"here; read x; echo got-$x'; echo ended-$?\n")
	tty.shows("it-is-here")
	tty.types("\x1a") // ^Z
	tty.shows("Stopped")
	tty.types("echo shell-$((1+1))\n")
	tty.shows("shell-2")
	tty.types("fg\n")
	tty.types("it\n")
	tty.shows("got-it")
	tty.types("netlock run $URL -- sh -c 'echo again-\"\"here; exec sleep 100'; echo second-$?\n")
	tty.shows("again-here")
	tty.types("\x03") // ^C
	tty.shows("second-130")
	// In the background a command that wants the terminal is stopped, until it is in the foreground.
	tty.types("netlock run $URL -- sh -c 'echo back-\"\"here; read x; echo back-$x' &\n")
	tty.shows("back-here")
	tty.types("sleep 0.3; jobs\n")
	tty.types("fg\n")
	tty.types("read\n")
	tty.shows("back-read")
}

func TestNetlockOnATerminalShowsTheHolder(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	other := s.session("other")
	other.Want(257, "MKD /phone_lock")
	tty := onTerminal(t, locker(t, s.lockURL("phone_lock"), "run", "URL", "--", "echo", "it ran"))
	tty.shows("waiting for phone_lock (" + s.v4 + "): held by other@127.0.0.1 since ")
	other.Want(250, "RMD /phone_lock")
	tty.shows("it ran")
	if shown := tty.shown.String(); !strings.Contains(shown, "\r\x1b[Kit ran") {
		t.Errorf("the line is not cleared: %q", shown)
	}
}
