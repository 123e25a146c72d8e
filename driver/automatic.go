package driver

import (
	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// This file has the two calls by which the commands of a job take part in automatic locks, see lock.Automatic.

// look is called before a command shows what a path leads to. The first look of a job may wait until another job ends.
func (c *client) look(cmd *control.Command, view string) {
	if !c.account.Write || !c.table().Rules().Automates() {
		return
	}
	n, err := c.follow(view)
	if err != nil {
		return // the command will find that, too
	}
	sign := lock.NoSign
	if cmd.Is("RETR") {
		sign = lock.Fetch
	}
	_ = c.inTurn(cmd, func(wake func()) (*lock.Waiting, error) { // whatever the result, the look goes on
		return c.locks.Look(c.server.context, n, sign, wake), nil
	})
}

// mayChange is called before a command changes paths. The first change of a job acquires their automatic lock, perhaps after it has
// waited. An error refuses all changes of the job.
func (c *client) mayChange(cmd *control.Command, paths ...lock.Name) error {
	if !c.table().Rules().Automates() {
		return nil
	}
	sign := lock.NoSign
	switch {
	case cmd.Is("MKD", "XMKD"):
		sign = lock.Make
	case cmd.Is("STOR"):
		sign = lock.Store
	}
	for _, n := range paths {
		err := c.inTurn(cmd, func(wake func()) (*lock.Waiting, error) {
			return c.locks.Change(c.server.context, n, sign, wake)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// inTurn begins something that may have to wait, and waits until it is over or the client withdraws it. A transfer waits on a goroutine
// of its own.
func (c *client) inTurn(cmd *control.Command, begin func(wake func()) (*lock.Waiting, error)) error {
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
		_, over, err = waiting.Poll(c.server.context)
		return over
	})
	if withdrawn != nil {
		waiting.Withdraw()
		return errWithdrawn
	}
	return err
}

// awaitTurn waits until a transfer may begin.
func (c *client) awaitTurn(cmd *control.Command, waiting *lock.Waiting, woken chan struct{}) error {
	for {
		if _, over, err := waiting.Poll(c.server.context); over {
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

// ObserveEnd is for lock.Options.Observe: it aborts the uploads under an automatic lock that is taken away from its job or ends by
// idleness, before another client gets the lock.
func (s *Server) ObserveEnd(r *lock.Record) {
	if r.Kind != lock.Ended || !r.Hold.Automatic || r.Cause == lock.CauseUnused {
		return
	}
	for _, t := range s.transfers.snapshot() {
		if t.file != nil && t.began.Lock == r.Hold.Name && t.began.Token == r.Hold.Token {
			t.cmd.Abort(errLockEnded)
		}
	}
}

var errLockEnded = &refusal{code: 426, text: "the lock of the files ended"}
