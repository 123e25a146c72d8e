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

// guardCommand is what netlock starts itself as to be a guard.
const guardCommand = "__guard"

// guard is a process that kills a group when we have ended without a word: nobody looks after the lock then. It has a session of its
// own, so that what ends us from a terminal or by our group does not reach it. Who ends it, too, ends nothing else by that.
type guard struct {
	process *os.Process
	pipe    *os.File // its end tells the guard of ours
}

// allWell is the last thing that a guard is told: its group may live.
const allWell = "all well\n"

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

// executable is our own program, on Linux also when its file was replaced since.
func executable() (string, error) {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe", nil
	}
	return os.Executable()
}

// watch tells the guard which group is its own.
func (g *guard) watch(group int) error {
	_, err := fmt.Fprintln(g.pipe, group)
	return err
}

// dismiss ends the guard, which leaves its group alone.
func (g *guard) dismiss() {
	_, _ = io.WriteString(g.pipe, allWell) // a guard that was killed reads nothing
	_ = g.pipe.Close()
	_, _ = g.process.Wait()
}

// newGuardCommand returns the command that is a guard.
func newGuardCommand() *cobra.Command {
	return &cobra.Command{
		Use: guardCommand, Hidden: true, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return guarding(os.Stdin) },
	}
}

// guarding is all that a guard does: it reads the number of its group, and kills that at the end of the file unless all is well.
func guarding(from io.Reader) error {
	told, err := io.ReadAll(io.LimitReader(from, 1<<10))
	if err != nil {
		return fail(exitInternal, "guard: %w", err)
	}
	number, rest, whole := strings.Cut(string(told), "\n")
	var group int
	if _, err := fmt.Sscan(number, &group); err != nil || !whole || group <= 1 || rest == allWell {
		return nil
	}
	if err := unix.Kill(-group, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return fail(exitInternal, "guard: %w", err)
	}
	return nil
}
