package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/ftplockd/ftplockd/locksmith"
)

// killAfter is the default time between SIGTERM and SIGKILL when the lock is lost.
const killAfter = 300 * time.Millisecond

// runner runs a command under a lock.
type runner struct {
	*settings
	stderr io.Writer
}

func (r *runner) run(ctx context.Context, arg string, command []string) error {
	r.stderr = os.Stderr
	path, err := exec.LookPath(command[0])
	if err != nil {
		return notRunnable(err)
	}
	signals, _ := listen(forwardedSignals()...) // from now on: the command gets a signal that arrives while it starts
	ctx, stop := interruptible(ctx)
	defer stop()
	t, err := r.resolve(arg)
	if err != nil {
		return err
	}
	g, err := newGuard() // before the lock: without /proc there is none
	if err != nil {
		return fail(exitInternal, "run: the command cannot be guarded: %w", err)
	}
	lock, err := acquire(ctx, t, r.noteOf(os.Getpid(), filepath.Base(command[0])))
	if err != nil {
		g.dismiss()
		return err
	}
	stop()
	c, err := startChild(path, command, environment(lock, t))
	if err != nil {
		g.dismiss()
		return errors.Join(notRunnable(err), release(lock, t))
	}
	_ = g.watch(c.groupID()) // it fails if the guard was killed
	e := r.supervise(c, signals, lock)
	g.dismiss()
	return r.result(e, release(lock, t))
}

// ending describes the end of a command.
type ending struct {
	status int
	lost   bool      // the lock was lost
	signal os.Signal // ended the command and is one for netlock, too; else nil
	group  bool      // the signal came from the terminal, which sends it to a whole process group
}

// result returns the exit status. If the lock was not lost, the command did its work under the lock: its own failure precedes an error of the
// release.
func (r *runner) result(e ending, err error) error {
	switch {
	case e.lost:
		return exitOnly(exitLost) // handleLoss has written the error
	case err == nil:
	case errors.Is(err, locksmith.ErrLost), e.status == exitOK:
		return err
	default:
		message(r.stderr, err.Error())
	}
	return &statusError{status: e.status, signal: e.signal, group: e.group}
}

// notRunnable returns the exit status of a shell for a command that cannot be started.
func notRunnable(err error) error {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return fail(exitNotFound, "run: %w", err)
	}
	return fail(exitNotRunnable, "run: %w", err)
}

// The variables that describe the lock to the command, and to a netlock in it.
const (
	serverVariable  = "NETLOCK_SERVER"
	accountVariable = "NETLOCK_ACCOUNT"
	pathVariable    = "NETLOCK_PATH"
	tokenVariable   = "NETLOCK_TOKEN"
	jobKeyVariable  = "NETLOCK_JOB_KEY"
)

// environment sets and returns the environment with the variables of the lock, instead of those of an outer netlock: C and Perl read the first one
// of a name, shells the last one.
func environment(lock *locksmith.Lock, t *target) []string {
	token := ""
	if n := lock.Token(); n > 0 {
		token = strconv.FormatUint(n, 10)
	}
	for name, value := range map[string]string{
		serverVariable: t.server(), accountVariable: t.user(), pathVariable: lock.Path(), tokenVariable: token, jobKeyVariable: lock.JobKey(),
	} {
		_ = os.Setenv(name, value) // they have no NUL
	}
	return os.Environ()
}

// heldLock is the part of a lock that supervise uses.
type heldLock interface {
	Path() string
	Context() context.Context
	Err() error
	Expires() time.Time
}

// supervise waits for the end of the command and passes signals on. It ends the command when the lock is lost.
func (r *runner) supervise(c *child, signals <-chan os.Signal, lock heldLock) ending {
	defer c.close()
	lost := false
	received := make(map[os.Signal]bool)
	var written <-chan error // the result of writing the error; nil if the lock is not lost
	lockEnded := lock.Context().Done()
	var killTime <-chan time.Time // the time of SIGKILL; nil before the lock is lost, and after SIGKILL
	for {
		select {
		case e := <-c.events:
			if e.stopped != nil {
				c.suspend(e.stopped)
				continue
			}
			if killTime == nil && isClosed(lockEnded) {
				lost = true
				killTime, written = r.handleLoss(c, lock)
			}
			if lost {
				r.awaitGroup(c, killTime)
			}
			if written != nil {
				_ = await(written)
			}
			end := ending{status: e.status, lost: lost, group: c.hasKey(e.signal)}
			for len(signals) > 0 { // a service manager sends a signal to all processes of a service
				received[<-signals] = true
			}
			if end.group || received[e.signal] {
				end.signal = e.signal
			}
			return end
		case s := <-signals:
			received[s] = true
			c.forward(s)
		case <-lockEnded:
			lockEnded, lost = nil, true
			killTime, written = r.handleLoss(c, lock)
		case <-killTime:
			killTime = nil
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

// handleLoss sends SIGTERM to the command and writes the error in the background. killTime fires when it is time for SIGKILL: after --kill-after,
// and a moment before the server can grant the lock to another client.
func (r *runner) handleLoss(c *child, lock heldLock) (killTime <-chan time.Time, written <-chan error) {
	c.terminate()
	after := time.Duration(r.killAfter)
	if end := lock.Expires(); !end.IsZero() {
		after = min(after, time.Until(end)-100*time.Millisecond)
	}
	killTime = time.After(after)
	return killTime, startWrite(r.stderr, fmt.Sprintf("netlock: %s: %s; the command is ended\n", lock.Path(), oneLine(fmt.Sprint(lock.Err()))))
}

// killWait is how long netlock waits for the death of the group after SIGKILL. A process that hangs in the kernel can live longer.
const killWait = time.Second

// awaitGroup waits for the processes that an ended command left in its group, because the release of the lock lets another client change the
// files. It kills them at killTime; nil: they were killed.
func (r *runner) awaitGroup(c *child, killTime <-chan time.Time) {
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	var limit <-chan time.Time
	if killTime == nil {
		limit = time.After(killWait)
	}
	for c.groupAlive() {
		select {
		case <-look.C:
		case <-killTime:
			c.kill()
			killTime, limit = nil, time.After(killWait)
		case <-limit:
			return
		}
	}
}
