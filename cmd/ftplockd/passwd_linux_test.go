package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// openTerminal returns the two ends of a pseudo-terminal: that of the user, and that of the program.
func openTerminal(t *testing.T) (person, program *os.File) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skip("no pseudo-terminals:", err)
	}
	person = os.NewFile(uintptr(fd), "ptmx")
	t.Cleanup(func() { person.Close() })
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Skip("no pseudo-terminals:", err)
	}
	t.Cleanup(func() { program.Close() })
	return person, program
}

// shows reports whether the echo of a terminal is on.
func shows(t *testing.T, terminal *os.File) bool {
	t.Helper()
	state, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return state.Lflag&unix.ECHO != 0
}

// awaitHidden polls until a program has turned the echo of a terminal off.
func awaitHidden(t *testing.T, terminal *os.File) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); shows(t, terminal); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the echo stays on")
		}
	}
}

// passwd starts the command at a terminal.
func passwd(t *testing.T, terminal *os.File) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	t.Helper()
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.CommandContext(t.Context(), self)
	cmd.Args = []string{"ftplockd", "passwd"} // TestMain selects the program by this name
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, stdout, stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, stdout, stderr
}

func TestPasswdDoesNotEchoThePassword(t *testing.T) {
	person, program := openTerminal(t)
	cmd, stdout, stderr := passwd(t, program)
	awaitHidden(t, program)
	if _, err := person.WriteString("secret\nsecret\n"); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err, stderr)
	}
	if !strings.HasPrefix(stdout.String(), "$argon2id$") || !shows(t, program) {
		t.Errorf("%q, echo %v", stdout, shows(t, program))
	}
	if _, err := program.WriteString("end"); err != nil {
		t.Fatal(err)
	}
	var shown []byte
	for !bytes.HasSuffix(shown, []byte("end")) {
		b := make([]byte, 64)
		n, err := person.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		shown = append(shown, b[:n]...)
	}
	if bytes.Contains(shown, []byte("secret")) || strings.Contains(stderr.String(), "secret") {
		t.Errorf("shown: %q, %q", shown, stderr)
	}
}

func TestPasswdRestoresTheEchoAfterASignal(t *testing.T) {
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		_, program := openTerminal(t)
		cmd, stdout, _ := passwd(t, program)
		awaitHidden(t, program)
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != exitFailure {
			t.Error(signal, err)
		}
		if !shows(t, program) {
			t.Errorf("%v: the echo is off", signal)
		}
		if stdout.Len() > 0 {
			t.Errorf("%v: %q", signal, stdout)
		}
	}
}
