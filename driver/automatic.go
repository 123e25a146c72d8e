package driver

import (
	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/job"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// Commands call package job twice for automatic locks: look when they show a file, takeAutomatic before they change one.

// look records that the command shows a file or directory to the job. The first look of a job may wait until another job ends.
func (c *client) look(cmd *control.Command, view string) {
	if !c.account.Writes() || !c.table().Rules().Yields() {
		return
	}
	n, err := c.follow(view)
	if err != nil {
		return // the command fails, too
	}
	sign := job.NoSign
	if cmd.Is("RETR") {
		sign = job.Fetch
	}
	_ = c.inTurn(cmd, func(wake func()) (*job.Waiting, error) { // no result refuses the command
		return c.jobs.Look(c.server.context, n, sign, wake), nil
	})
}

// takeAutomatic acquires the automatic lock of a path for the first change of the job. If that fails with a *job.Error, package job refuses
// every later change of the job there, until the job starts anew.
func (c *client) takeAutomatic(cmd *control.Command, n lock.Name) error {
	if !c.table().Rules().Yields() {
		return nil
	}
	sign := job.NoSign
	switch {
	case cmd.Is("MKD", "XMKD"):
		sign = job.Make
	case cmd.Is("STOR"):
		sign = job.Store
	}
	return c.inTurn(cmd, func(wake func()) (*job.Waiting, error) {
		return c.jobs.Change(c.server.context, n, sign, wake)
	})
}

// inTurn calls begin. If begin returns a Waiting, inTurn waits until it is over. A transfer waits on its own goroutine until it is aborted.
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

// writeFor returns the change of a path for lock.Session.Write and MayMake, under the automatic lock that the session's job holds.
func (c *client) writeFor(n lock.Name) lock.Write { return lock.Write{Path: n, Under: c.jobs.Under(n)} }

// holderAt returns the session that holds the automatic lock of a path for the session's job, otherwise the client's.
func (c *client) holderAt(n lock.Name) *lock.Session {
	if under := c.jobs.Under(n); under != nil {
		return under
	}
	return c.locks
}

// ObserveEnd is for lock.Options.Observe. When an automatic lock ends, unless its job has changed nothing, ObserveEnd aborts the uploads
// under it before another client gets the lock.
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

var errLockEnded = &refusal{code: 426, text: "the lock of the files ended"}
