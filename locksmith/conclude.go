package locksmith

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// conclude is the end of the waiting: by then no MKD is under way.
func (a *acquisition) conclude(ctx context.Context) (*Lock, error) {
	if ctx.Err() != nil {
		return nil, a.giveUp(ctx, false)
	}
	if a.unsure {
		result, r := a.clearUp(ctx)
		if result == granted {
			return a.take(ctx, r)
		}
	}
	if held, ok := errors.AsType[*HeldError](a.last); ok {
		held.Waited = time.Since(a.began)
	}
	if a.last == nil {
		a.last = fmt.Errorf("%w: %s", ErrUnreachable, a.e.Address)
	}
	return nil, a.doubtful(a.last)
}

// doubtful adds to an error that the lock may be ours after all.
func (a *acquisition) doubtful(err error) error {
	if !a.unsure || errors.Is(err, ErrUnknown) {
		return err
	}
	return fmt.Errorf("%w (%w: the reply to an MKD of ours was lost)", err, ErrUnknown)
}

// clearUp finds out what became of an MKD whose reply was lost, by saying it again: a server that knows our nonce has us adopt
// what we have. It tries until Timeout is over, whatever has become of ctx.
func (a *acquisition) clearUp(ctx context.Context) (outcome, reply) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.e.Timeout)
	defer cancel()
	for {
		result, r := a.attempt(ctx, 0)
		if result != failed {
			return result, r
		}
		a.disconnect()
		if pause(ctx, 200*time.Millisecond); ctx.Err() != nil {
			return failed, r
		}
	}
}

// giveUp is the end of ctx: it leaves no lock behind, or says that it cannot tell. has: the last reply was a grant.
func (a *acquisition) giveUp(ctx context.Context, has bool) error {
	cause := context.Cause(ctx)
	if err := a.giveBack(ctx, has); err != nil {
		return fmt.Errorf("%w (%w)", cause, err)
	}
	return cause
}

// giveBack gives back what was granted, or what may have been; when it cannot tell it says so.
func (a *acquisition) giveBack(ctx context.Context, has bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.e.Timeout)
	defer cancel()
	for {
		if has {
			r, err := a.s.ask(ctx, "RMD "+a.o.Path)
			switch {
			case err == nil && (r.good() || a.s.nonce && !r.transient()):
				return nil
			case err == nil:
				return fmt.Errorf("%w: %s could not be given back: the server said %s", ErrUnknown, a.o.Path, r)
			}
			a.unsure = true
			a.disconnect()
		}
		if !a.unsure {
			return nil
		}
		result, _ := a.clearUp(ctx)
		if has = result == granted; !has {
			if a.unsure || result == failed {
				return fmt.Errorf("%w: the reply to an MKD of %s was lost", ErrUnknown, a.o.Path)
			}
			return nil
		}
	}
}
