package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/ftplockd/ftplockd/locksmith"
)

// killAfter is how long a command may take to end by itself when its lock is lost. With the third of a second that locksmith needs
// to notice, it is dead within a second, on a busy machine, too.
const killAfter = 300 * time.Millisecond

// newRunCommand returns the command that holds a lock around another one.
func newRunCommand(s *settings) *cobra.Command {
	r := runner{settings: s}
	cmd := &cobra.Command{
		Use:   "run PROFILE|URL -- COMMAND [ARGUMENT...]",
		Short: "hold a lock while a command runs",
		Long: `Run takes the lock, runs the command, and gives the lock back when the command has ended. It exits
with the command's status, or 128+n if signal n ended it. Signals are passed on to the command.

The command has a process group of its own (on Windows a job). If the lock is lost, the whole group
gets SIGTERM, and SIGKILL after --kill-after; the exit status is 79 then. What the command leaves
running when it ends is neither waited for nor ended.

The command finds in its environment NETLOCK_PATH, the lock's name on the server, and NETLOCK_TOKEN, its
fencing token ("" from a server that has none).`,
		Example: `  netlock run phonestuff -- ./upload.sh
  netlock run --timeout 1m phonestuff -- make phones
  netlock run --try nightly -- ./backup || [ $? = 75 ]      # another machine does it
  netlock run phonestuff -- sh -c 'echo token $NETLOCK_TOKEN'`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch dash := cmd.ArgsLenAtDash(); {
			case len(args) == 0:
				return errors.New("which lock? netlock run PROFILE -- COMMAND")
			case len(args) == 1:
				return errors.New("run what? netlock run PROFILE -- COMMAND")
			case dash != 1:
				return errors.New("write -- before the command, so that its options are its own: netlock run PROFILE -- COMMAND")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return r.run(cmd.Context(), args[0], args[1:])
		},
	}
	cmd.Flags().DurationVar(&r.killAfter, "kill-after", killAfter, "how long the command may take to end after SIGTERM when the lock is lost, before SIGKILL")
	s.waitingFlags(cmd)
	return cmd
}

// runner runs a command under a lock.
type runner struct {
	*settings
	killAfter time.Duration
	complain  io.Writer // standard error
}

func (r *runner) run(ctx context.Context, arg string, command []string) error {
	r.complain = os.Stderr
	path, err := exec.LookPath(command[0])
	if err != nil {
		return notRunnable(err)
	}
	t, lock, signals, err := r.acquire(ctx, arg)
	if err != nil {
		return err
	}
	c, err := startChild(path, command, environment(lock))
	if err != nil {
		return errors.Join(notRunnable(err), release(lock, t))
	}
	status, lost := r.supervise(c, signals, lock)
	err = release(lock, t)
	switch {
	case lost:
		return silent(exitLost) // it has been said
	case errors.Is(err, locksmith.ErrLost):
		return err
	case err != nil: // what the command has done was done under the lock
		fmt.Fprintln(r.complain, "netlock:", oneLine(err.Error()))
	}
	return silent(status)
}

// acquire takes the lock, unless a signal comes first, and returns the signals that come from then on.
func (r *runner) acquire(ctx context.Context, arg string) (*target, *locksmith.Lock, <-chan os.Signal, error) {
	early, forget := listen(endings()...)
	defer forget()
	ctx, stop := endOn(ctx, early)
	defer stop()
	t, err := r.resolve(ctx, arg)
	if err != nil {
		return nil, nil, nil, err
	}
	lock, err := acquire(ctx, t)
	if err != nil {
		return nil, nil, nil, err
	}
	signals, _ := listen(forwarded()...) // until we end: a signal must not be without a listener in between
	forget()
	var signal interrupted
	if !errors.As(context.Cause(ctx), &signal) {
		stop()
		select {
		case signal.signal = <-early:
		default:
			return t, lock, signals, nil
		}
	}
	return nil, nil, nil, errors.Join(classify(signal, t), release(lock, t))
}

// notRunnable is the status that a shell has for a command that cannot be started.
func notRunnable(err error) error {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return fail(exitNotFound, "run: %w", err)
	}
	return fail(exitNotRunnable, "run: %w", err)
}

// environment is ours with the lock's name and token.
func environment(lock *locksmith.Lock) []string {
	token := ""
	if n := lock.Token(); n > 0 {
		token = strconv.FormatUint(n, 10)
	}
	return append(os.Environ(), "NETLOCK_PATH="+lock.Path(), "NETLOCK_TOKEN="+token)
}

// held is what supervise wants to know of a lock.
type held interface {
	Path() string
	Done() <-chan struct{}
	Err() error
}

// supervise waits for the command's end, passes signals on, and ends it when the lock is lost. It returns the command's status.
func (r *runner) supervise(c *child, signals <-chan os.Signal, lock held) (status int, lost bool) {
	defer c.close()
	gone := lock.Done()
	var late <-chan time.Time // when what is left is killed; nil before the lock is lost, and after that
	for {
		select {
		case e := <-c.events:
			if e.stopped != nil {
				c.suspend(e.stopped)
				continue
			}
			if late == nil && isClosed(gone) {
				lost, late = true, r.lose(c, lock)
			}
			if late != nil {
				r.finish(c, late)
			}
			return e.status, lost
		case s := <-signals:
			c.pass(s)
		case <-gone:
			gone, lost, late = nil, true, r.lose(c, lock)
		case <-late:
			late = nil
			c.kill()
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c: // nil is never ready
		return true
	default:
		return false
	}
}

// lose tells of the loss of the lock, to the command, too, and returns when what is left is to be killed.
func (r *runner) lose(c *child, lock held) <-chan time.Time {
	c.terminate()
	fmt.Fprintf(r.complain, "netlock: %s: %s; the command is ended\n", lock.Path(), oneLine(fmt.Sprint(lock.Err())))
	return time.After(r.killAfter)
}

// finish sees to what a command that has ended left running in its group: nothing of it survives late.
func (r *runner) finish(c *child, late <-chan time.Time) {
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for c.anybody() {
		select {
		case <-look.C:
		case <-late:
			c.kill()
			return
		}
	}
}
