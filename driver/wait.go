package driver

import (
	"errors"
	"strconv"
	"time"

	"github.com/ftplockd/ftplockd/control"
	"github.com/ftplockd/ftplockd/lock"
)

// waiter is an MKD that waits for its turn, or an RMD that waits for the members of the lock to go
// (control.Waiter). It counts as a command under way, so as a sign of life.
type waiter struct {
	session *session
	client  *client
	view    string
	waiting *lock.Waiting
	// done is what is left to do with the hold that was waited for, and the reply.
	done func(lock.Hold) (control.Reply, error)
}

var _ control.Waiter = (*waiter)(nil)

func (s *session) waitsForLock(c *client, view string, m made) *waiter {
	c.locks.Begin()
	return &waiter{s, c, view, m.waiting, func(h lock.Hold) (control.Reply, error) {
		m.hold = h
		return s.acquired(c, view, m), c.roofed(s.context(), m.name, h)
	}}
}

func (s *session) waitsForMembers(c *client, view string, u unmade) *waiter {
	c.locks.Begin()
	return &waiter{s, c, view, u.waiting, func(h lock.Hold) (control.Reply, error) {
		s.server.dropNotes(u.name, append(u.holds, h))
		return control.Reply{Code: 250, Text: view + " released"}, nil
	}}
}

// Poll implements control.Waiter. Nothing is done for a client that has hung up: Read is about to see that
// and to withdraw.
func (w *waiter) Poll() (control.Reply, bool) {
	if w.session.conn.Gone() {
		return control.Reply{}, false
	}
	h, over, err := w.waiting.Poll(w.session.context())
	if !over {
		return control.Reply{}, false
	}
	defer w.client.locks.End()
	if err == nil {
		var r control.Reply
		if r, err = w.done(h); err == nil {
			return r, true
		}
	}
	return w.session.replyFor(w.view, err), true
}

// Withdraw implements control.Waiter.
func (w *waiter) Withdraw() control.Reply {
	defer w.client.locks.End()
	w.waiting.Withdraw()
	return control.Reply{Code: 550, Text: w.view + ": not waited for any longer"}
}

// siteWait is SITE WAIT.
func (s *session) siteWait(param string) control.Decision {
	seconds, err := strconv.ParseUint(param, 10, 64)
	if err != nil || seconds > maxAgeSeconds {
		return reply(501, "SITE WAIT wants a number of seconds")
	}
	s.client.locks.SetWait(time.Duration(seconds) * time.Second)
	if seconds == 0 {
		return reply(200, "this session does not wait for locks")
	}
	return reply(200, "this session waits for a lock up to "+(time.Duration(seconds)*time.Second).String())
}

// seen puts the paths into an error about several locks as the account sees them.
func (s *session) seen(err error) error {
	var deadlock *lock.DeadlockError
	if s.client == nil || !errors.As(err, &deadlock) {
		return err
	}
	return &refusal{is: lock.ErrHeld, text: deadlock.Text(func(n lock.Name) string {
		if view, ok := s.client.account.inView(n); ok {
			return view
		}
		return "another lock"
	})}
}
