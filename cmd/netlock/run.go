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

	"github.com/ftplockd/ftplockd/locksmith"
)

// killAfter is how long a command may take to end by itself when its lock is lost.
const killAfter = 300 * time.Millisecond

// runner runs a command under a lock.
type runner struct {
	*settings
	complain io.Writer // standard error
}

func (r *runner) run(ctx context.Context, arg string, command []string) error {
	r.complain = os.Stderr
	path, err := exec.LookPath(command[0])
	if err != nil {
		return notRunnable(err)
	}
	signals, _ := listen(forwarded()...) // until we end: one that comes as the command is about to start is for the command
	ctx, stop := interruptible(ctx)
	defer stop()
	t, err := r.resolve(arg)
	if err != nil {
		return err
	}
	lock, err := acquire(ctx, t)
	if err != nil {
		return err
	}
	stop()
	c, g, err := startGuarded(path, command, environment(lock, t))
	if err != nil {
		return errors.Join(err, lock.release(t))
	}
	t.tell("executing %s", command[0])
	status, lost := r.supervise(c, signals, lock)
	g.dismiss()
	err = r.result(status, lost, lock.release(t))
	if err == nil || statusOf(err) == status && !lost {
		t.tell("%s: the command has ended with status %d", t.name, status)
	} else {
		t.tell("%s: the command has ended with status %d; status %d is netlock's", t.name, status, statusOf(err))
	}
	return err
}

// startGuarded starts a command, with a guard for the case that we are killed.
func startGuarded(path string, argv, env []string) (*child, *guard, error) {
	g, err := newGuard()
	if err != nil {
		return nil, nil, fail(exitInternal, "run: the command cannot be guarded: %w", err)
	}
	c, err := startChild(path, argv, env)
	if err != nil {
		g.dismiss()
		return nil, nil, notRunnable(err)
	}
	_ = g.watch(c.number()) // it may have been killed; then there is nobody to tell
	return c, g, nil
}

// result is what it all came to. What the command has done was done under the lock, if that was not lost; so its own failure goes before
// that of giving the lock back.
func (r *runner) result(status int, lost bool, err error) error {
	switch {
	case lost:
		return silent(exitLost) // it has been said
	case err == nil:
		return silent(status)
	case errors.Is(err, locksmith.ErrLost), errors.Is(err, locksmith.ErrUnknown) && status == exitOK:
		return err
	}
	_ = heard(say(r.complain, "netlock: "+oneLine(err.Error())+"\n"))
	return silent(status)
}

// notRunnable is the status that a shell has for a command that cannot be started.
func notRunnable(err error) error {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return fail(exitNotFound, "run: %w", err)
	}
	return fail(exitNotRunnable, "run: %w", err)
}

// The variables that tell a command, and a netlock in it, which lock it has.
const (
	serverVariable = "NETLOCK_SERVER"
	pathVariable   = "NETLOCK_PATH"
	tokenVariable  = "NETLOCK_TOKEN"
	nonceVariable  = "NETLOCK_NONCE"
)

// environment is ours with the lock's server, name, token and nonce.
func environment(lock *holding, t *target) []string {
	token := ""
	if n := lock.Token(); n > 0 {
		token = strconv.FormatUint(n, 10)
	}
	return append(os.Environ(), serverVariable+"="+t.server(), pathVariable+"="+lock.Path(), tokenVariable+"="+token, nonceVariable+"="+lock.Nonce())
}

// held is what supervise wants to know of a lock.
type held interface {
	Path() string
	Context() context.Context
	Err() error
	Expires() time.Time
}

// supervise waits for the command's end, passes signals on, and ends it when the lock is lost. It returns the command's status.
func (r *runner) supervise(c *child, signals <-chan os.Signal, lock held) (status int, lost bool) {
	defer c.close()
	var said <-chan error // of the loss; nil: there was none
	gone := lock.Context().Done()
	var late <-chan time.Time // when what is left is killed; nil before the lock is lost, and after that
	for {
		select {
		case e := <-c.events:
			if e.stopped != nil {
				c.suspend(e.stopped)
				continue
			}
			if late == nil && isClosed(gone) {
				lost = true
				late, said = r.lose(c, lock)
			}
			if late != nil {
				r.finish(c, late)
			}
			if said != nil {
				_ = heard(said)
			}
			return e.status, lost
		case s := <-signals:
			c.pass(s)
		case <-gone:
			gone, lost = nil, true
			late, said = r.lose(c, lock)
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

// lose tells of the loss of the lock, to the command, too. It returns when what is left is to be killed, whether somebody reads what is said or
// not: after --kill-after, and a moment before the server can grant the lock to another client.
func (r *runner) lose(c *child, lock held) (late <-chan time.Time, said <-chan error) {
	c.terminate()
	after := time.Duration(r.killAfter)
	if end := lock.Expires(); !end.IsZero() {
		after = min(after, time.Until(end)-100*time.Millisecond)
	}
	late = time.After(after)
	return late, say(r.complain, fmt.Sprintf("netlock: %s: %s; the command is ended\n", lock.Path(), oneLine(fmt.Sprint(lock.Err()))))
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
