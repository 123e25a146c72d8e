package driver

import (
	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/job"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// A job is all sessions of one account with one job key, or without a key from one address. Commands that show a file call look. Commands that
// change one call takeAutomatic first.

// look records that the job has seen a file or directory. The first look of a job may wait until another job ends. It never refuses the command.
func (c *client) look(cmd *control.Command, view string) {
	if !c.account.Writes() || !c.table().Rules().HasAutomatic() {
		return
	}
	n, err := c.follow(view)
	if err != nil {
		return // the path leads nowhere, so the command shows nothing of it
	}
	command := job.AnyCommand
	if cmd.Is("RETR") {
		command = job.Fetch
	}
	_ = c.inTurn(cmd, func(wake func()) (*job.Waiting, error) {
		return c.jobs.Look(c.server.context, n, command, wake), nil
	})
}

// takeAutomatic acquires the automatic lock of a path for the first change of the job. After a *job.Error package job refuses every change of
// the job under that lock, until the job has no session for some time: see docs/deployments.md.
func (c *client) takeAutomatic(cmd *control.Command, n lock.Name) error {
	if !c.table().Rules().HasAutomatic() {
		return nil
	}
	command := job.AnyCommand
	switch {
	case cmd.Is("MKD", "XMKD"):
		command = job.Make
	case cmd.Is("STOR"):
		command = job.Store
	}
	return c.inTurn(cmd, func(wake func()) (*job.Waiting, error) {
		return c.jobs.Change(c.server.context, n, command, wake)
	})
}

// inTurn calls begin. If begin returns a Waiting, inTurn waits until it is over. A transfer waits on its own goroutine, and an abort ends the wait.
// Every other command waits here. If the client hangs up or the session ends, inTurn returns errWithdrawn; a line that the client sends
// meanwhile is executed afterwards.
func (c *client) inTurn(cmd *control.Command, begin func(wake func()) (*job.Waiting, error)) error {
	wake := c.conn.Wake
	woken := make(chan struct{}, 1)
	if cmd.Transfers() {
		wake = func() {
			select {
			case woken <- struct{}{}:
			default:
			}
		}
	}
	waiting, err := begin(wake)
	switch {
	case waiting == nil:
		return err
	case cmd.Transfers():
		return c.awaitTurn(cmd, waiting, woken)
	}
	withdrawn := cmd.WaitThrough(func() (over bool) {
		over, err = waiting.Poll(c.server.context)
		return over
	})
	if withdrawn != nil {
		waiting.Withdraw()
		return errWithdrawn
	}
	return err
}

// awaitTurn waits until a transfer may begin.
func (c *client) awaitTurn(cmd *control.Command, waiting *job.Waiting, woken chan struct{}) error {
	for {
		if over, err := waiting.Poll(c.server.context); over {
			return err
		}
		select {
		case <-woken:
		case <-cmd.Aborted():
			waiting.Withdraw()
			return cmd.Cause()
		case <-c.server.context.Done():
			waiting.Withdraw()
			return control.ErrStopped
		}
	}
}

// writeFor describes a change of n for lock.Session.Write and MayMake. Under is the session that holds the automatic lock of n for the job, or nil.
func (c *client) writeFor(n lock.Name) lock.Write { return lock.Write{Path: n, Under: c.jobs.Under(n)} }

// holderAt returns the session that holds the automatic lock of n for the job; without one, that of the client.
func (c *client) holderAt(n lock.Name) *lock.Session {
	if under := c.jobs.Under(n); under != nil {
		return under
	}
	return c.locks
}

// ObserveEnd is for lock.Options.Observe. When the automatic lock of a job that has changed something ends, ObserveEnd aborts the
// job's uploads under it before another client gets the lock.
func (s *Server) ObserveEnd(r *lock.Record) {
	if r.Kind != lock.Ended || !r.Hold.Job || r.Cause == lock.CauseUnused {
		return
	}
	for t := range s.transfers.Range {
		t := t.(*transfer)
		if t.file != nil && t.permitAtStart.Lock == r.Hold.Name && t.permitAtStart.Token == r.Hold.Token {
			t.cmd.Abort(errLockEnded)
		}
	}
}

var errLockEnded = &refusal{code: 426, text: "the automatic lock of the file has ended"}
