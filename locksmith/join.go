package locksmith

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A Ticket names a held lock for another process of the job, see [Join]. Its JobKey is a secret among the programs of the account.
type Ticket struct {
	Token  uint64 // 0 only on a server without tokens
	JobKey string
	Path   string
}

// Ticket returns the ticket of the lock. It stays valid when the lock is adopted after a disconnect, or a restart of the server.
func (l *Lock) Ticket() Ticket { return Ticket{Token: l.Token(), JobKey: l.e.JobKey, Path: l.path} }

// String returns the ticket as text for an environment variable: token, job key and path, with spaces between them.
func (t Ticket) String() string {
	return strconv.FormatUint(t.Token, 10) + " " + t.JobKey + " " + t.Path
}

// ParseTicket reads the text of [Ticket.String]. Another text is an [ErrRefused].
func ParseTicket(text string) (Ticket, error) {
	token, rest, _ := strings.Cut(text, " ")
	key, path, ok := strings.Cut(rest, " ")
	n, err := strconv.ParseUint(token, 10, 64)
	if !ok || err != nil || path == "" {
		return Ticket{}, fmt.Errorf("%w: the text is no ticket of a lock", ErrRefused) // it may contain a secret
	}
	return Ticket{Token: n, JobKey: key, Path: path}, nil
}

// Join returns a lock that another connection of the job holds, for instance one of the parent process. The JobKey of the ticket replaces that of c.
// While the server cannot be reached, Join waits until ctx ends, as [Acquire] does. The error is [ErrLost] if the job does not hold the lock. Of the
// options only Margin, Wait and OnWait count.
//
// The joined lock ends with the lock of the holder: after its release, its loss, or the end of its connection. So the holder must outlive the joined
// lock; a child that outlives its parent takes the lock over by [Acquire] with the same JobKey. Release of a joined lock only checks it: the
// other connection still holds the lock.
//
// The token of the ticket may be older than that of the lock, because the token grows when the holder connects again. A later hold of the same JobKey
// cannot be told from that, so a job that does not pass tickets on in time needs a new JobKey each time it runs.
//
// On a server without [FeatureTokens], Join only checks whether the directory exists.
func Join(ctx context.Context, c Config, t Ticket, o Options) (*Lock, error) {
	if t.JobKey != "" {
		c.JobKey = t.JobKey
	}
	e, err := c.resolve()
	if err != nil {
		return nil, err
	}
	ctx, cancel := o.limit(ctx)
	defer cancel()
	for {
		l, err := joinOnce(ctx, e, t, o)
		if err == nil || ctx.Err() == nil && !isPassing(err) {
			return l, err
		}
		if ctx.Err() == nil && o.OnWait != nil {
			o.OnWait(err)
		}
		if pause(ctx, min(e.Poll, time.Second)); ctx.Err() != nil {
			return nil, waitEnded(ctx, t.Path, err)
		}
	}
}

func joinOnce(ctx context.Context, e *endpoint, t Ticket, o Options) (*Lock, error) {
	s, err := connect(ctx, e)
	if err != nil {
		return nil, err
	}
	l := newLock(e, s, t.Path, Options{Margin: o.Margin})
	l.path = s.abs(t.Path)
	l.joined, l.token = true, t.Token
	if s.hasFacts() && t.Token == 0 {
		err = fmt.Errorf("%w: %s: the ticket has no token", ErrLost, l.path)
	} else if err = l.resume(ctx, s); err == nil {
		if why := l.lease.tooShort(); why != "" {
			err = fmt.Errorf("%w: %s: %s", ErrRefused, l.path, why)
		} else {
			err = l.Err() // less than the margin may be left
		}
	}
	if err != nil {
		l.end(err)
		s.leave(ctx)
		return nil, err
	}
	l.start()
	return l, nil
}

// notJoined returns the error of a joined lock that the facts do not contain.
func (l *Lock) notJoined(i Status) error {
	why := "no client holds it"
	if mine, ok := i.find(func(h Holder) bool { return h.Mine }); ok {
		why = fmt.Sprintf("the job has token %d, and not %d", mine.Token, l.Token())
	} else if i.Held {
		why = "another job holds it, or the job key is wrong: held by " + i.Holders[0].Owner
	}
	return fmt.Errorf("%w: %s: %s", ErrLost, l.path, why)
}

// checkLast checks a joined lock until the result is known. The caller has the turn.
func (l *Lock) checkLast(ctx context.Context) error {
	var last error
	for {
		err := l.useInTurn(ctx, func(s *session) error { return l.check(ctx, s) })
		switch {
		case err == nil, errors.Is(err, ErrLost):
			return err
		case ctx.Err() != nil:
			return l.noAnswer(last)
		}
		last = err
		pause(ctx, 100*time.Millisecond)
	}
}
