package driver

import (
	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// The commands of a job take part in automatic locks (see lock.Automatic) by two calls: look and takeAutomatic.

// look comes before every command that shows what a path leads to. The first look of a job may wait until another job ends.
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

// takeAutomatic acquires the automatic lock of a path for the job's first change. After an error all changes of the job are refused.
func (c *client) takeAutomatic(cmd *control.Command, n lock.Name) error {
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
	return c.inTurn(cmd, func(wake func()) (*lock.Waiting, error) {
		return c.locks.Change(c.server.context, n, sign, wake)
	})
}

// inTurn calls begin, and if that returns a Waiting, waits until it is over or the client withdraws the command. A transfer runs on
// its own goroutine, so it waits there; every other command reads the connection while it waits.
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

// ObserveEnd is part of lock.Options.Observe. It aborts the uploads under an automatic lock that is taken away from its job or ends by
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
