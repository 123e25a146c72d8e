//go:build unix

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// guardCommand is the command of netlock that is a guard.
const guardCommand = "__guard"

// guard is a process that kills the command's group when netlock ends without a message, because no process watches the lock then. It has a
// session of its own: a signal from the terminal or to the group of netlock does not reach it.
type guard struct {
	process *os.Process
	pipe    *os.File // it closes when netlock ends
}

// dismissal is the last message to a guard, which then leaves its group alone.
const dismissal = "dismissed\n"

// newGuard starts a guard, for a group that does not exist yet.
func newGuard() (*guard, error) {
	self, err := executable()
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	p, err := os.StartProcess(self, []string{"netlock", guardCommand}, &os.ProcAttr{
		Dir: "/", Env: os.Environ(), Files: []*os.File{r, nil, nil}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return &guard{p, w}, nil
}

// executable returns the path of this program. On Linux it works after the file was replaced, too.
func executable() (string, error) {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe", nil
	}
	return os.Executable()
}

// watch sends the guard the number of its group.
func (g *guard) watch(group int) error {
	_, err := fmt.Fprintln(g.pipe, group)
	return err
}

// dismiss ends the guard, which leaves its group alone.
func (g *guard) dismiss() {
	_, _ = io.WriteString(g.pipe, dismissal) // it fails if the guard was killed
	_ = g.pipe.Close()
	_, _ = g.process.Wait()
}

// newGuardCommand returns the command that is a guard.
func newGuardCommand() *cobra.Command {
	return &cobra.Command{
		Use: guardCommand, Hidden: true, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return runGuard(os.Stdin) },
	}
}

// runGuard reads the number of a group, and kills the group at the end of the file unless the last message is dismissal.
func runGuard(from io.Reader) error {
	text, err := io.ReadAll(io.LimitReader(from, 1<<10))
	if err != nil {
		return fail(exitInternal, "guard: %w", err)
	}
	number, rest, whole := strings.Cut(string(text), "\n")
	var group int
	if _, err := fmt.Sscan(number, &group); err != nil || !whole || group <= 1 || rest == dismissal {
		return nil
	}
	if err := unix.Kill(-group, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return fail(exitInternal, "guard: %w", err)
	}
	return nil
}
