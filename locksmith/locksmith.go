// Package locksmith holds locks on an FTP server. It is the client side of ftplockd, and works with other FTP servers, such as vsftpd.
//
// A lock is a directory: MKD makes it for exactly one client, RMD removes it (The Perl Journal, "Resource Locking Over
// Networks", 2002). A [Lock] is held over a connection of its own. [Do] runs a function under a lock, which is enough for a nightly job.
// [Acquire] and [TryAcquire] return a Lock, which must be released, also after a loss: a long-running service works until its [Lock.Context] ends, stops its
// work, releases the lock, and then acquires it again. [Stat] describes a lock. [Join] is for a child process of the holder.
//
// # Leases
//
// [Lock.Context] ends before ftplockd can grant the lock to another client. The server can do that at the end of the lock's age, when the lock was
// idle for too long (max_idle), or some time after its connection has ended ([Config].Grace). A Lock counts each of these from before it sent the
// last request that the server answered, and subtracts a margin ([Options].Margin). It sends a request each second. If the connection is lost, it
// connects again and adopts the lock by its JobKey (SITE LOCK AS).
//
// # Caveats
//
//   - If an administrator breaks the lock, or the holder of a joined lock releases it, the context ends up to a second later, or within the grace if
//     the network fails too. Let ftplockd protect the files, or compare fencing tokens. With lock_delay = "3s" in its rule, ftplockd grants a broken lock
//     three seconds later, so the old holder has time to stop.
//   - Time in suspend counts on Linux only. When a machine wakes after the end of a lease, the context is alive for up to a second; [Lock.Err]
//     is exact.
//   - Other servers lack the features in [Lock.Unsupported]. There a lock is lost when its directory is gone or has another time (vsftpd reports
//     minutes), or when the server has not answered for a minute. Release checks the directory and then sends RMD; no FTP server does both in one
//     step. After a lost reply to MKD a directory may remain ([ErrUnknown]).
//   - For a Lock, an ftplockd without facts (SITE LOCK FACTS in FEAT) is another server.
//   - Under TLS, data connections resume the session of the control connection by tickets. A server that requires session
//     ids instead (RFC 5246 section 7.3) refuses them: package crypto/tls has tickets only.
//
// # Time limits
//
// When its context ends, each call returns within about 100 ms if DialContext does; Put and Get also wait for the reader or writer of the caller. Acquire
// takes another second for the present holder if a deadline has ended the context. Do first waits for its function. What is left goes on in the background
// for two seconds at most: closing the connection, releasing a lock that is granted late, or removing a temporary file. So a service that must end within two
// seconds of SIGTERM calls Release with a context of one second, and exits.
//
// # Errors
//
// Errors match, with errors.Is, one of [ErrHeld], [ErrRefused], [ErrLogin], [ErrUnreachable], [ErrTLS], [ErrLost], [ErrReleased], [ErrUnknown],
// [ErrTransfer] and [ErrLocal], or they are the end of a context: then they match context.Canceled or context.DeadlineExceeded, and the cause of the
// context. An error can match several of these.
//
// Start reading at [Do].
package locksmith

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Options are the options of an acquisition.
type Options struct {
	// Shared requests a lock that several clients hold together. If the server grants it to one holder alone, Acquire releases it and returns
	// ErrRefused. See the key "shared" of ftplockd's rules.
	Shared bool
	// Renew gives the lock a full age (SITE LOCK RENEW) whenever half of it is over.
	Renew bool
	// MaxAge limits the age of the lock (SITE LOCK AGE), rounded up to seconds. The server's rule may end the lock earlier. 0: as the server's rule.
	MaxAge time.Duration
	// Note describes the job for people, such as "web3 4711 backup.sh" (SITE LOCK NOTE). ftplockd shows it with the lock, also to other clients.
	// Characters that are not printable become "?", and a note of more than 80 bytes is cut. Servers without [FeatureNote] do not get it. "": none.
	Note string
	// Margin is the time from the end of Lock.Context to the time when the server can grant the lock to another client. Acquire returns ErrRefused
	// if the lock can end within twice the margin. 0: two seconds, or a fifth of the shortest limit of the lock.
	Margin time.Duration
	// Wait limits the wait for the lock and the server, as a deadline of ctx does. The error then matches context.DeadlineExceeded. 0: until ctx ends.
	Wait time.Duration
	// OnWait, if it is set, is called each time a try has failed and another one follows. The error is a *HeldError, or matches ErrUnreachable or
	// ErrUnknown. In the queue of ftplockd a try takes 20 s, so OnWait is called that often, and not when the holder changes; it is also called before the
	// queue, with the holder. Acquire waits until OnWait returns.
	OnWait func(error)
}

// limit returns ctx with the deadline of Wait.
func (o Options) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if o.Wait > 0 {
		return context.WithTimeout(ctx, o.Wait)
	}
	return context.WithCancel(ctx)
}

// Acquire acquires a lock. The name is an absolute path, or relative to the directory after login. While another client holds the lock, or the server
// cannot be reached, Acquire waits until ctx ends. It does not wait if the host is unknown.
//
// An error at the end of ctx also is a *[HeldError] if another client holds the lock, or matches [ErrUnreachable]. If a deadline ended ctx, Acquire first
// requests the present holder, for up to a second. [ErrUnknown] means that a reply was lost which may have granted the lock. ftplockd undoes such a
// grant by itself.
//
// The lock does not end with ctx: it is held until Release, or until it is lost.
func Acquire(ctx context.Context, c Config, name string, o Options) (*Lock, error) {
	return acquire(ctx, c, name, o, false)
}

// TryAcquire is like Acquire, but returns at once if another client holds the lock, or the server cannot be reached. If a reply is lost, it takes up
// to the Timeout of c to find out whether the lock was granted.
func TryAcquire(ctx context.Context, c Config, name string, o Options) (*Lock, error) {
	return acquire(ctx, c, name, o, true)
}

// Do acquires the lock, calls f, and releases the lock, also if ctx has ended: then the server has about 100 ms, see [Lock.Release]. The context of f ends
// with ctx, and when the lock is lost; then its cause is the error of the lock. [Options].Wait limits only the wait for the lock. Do returns the error of f,
// joined with that of the release: [ErrLost] if f may have run without the lock, and [ErrRefused] and [ErrUnknown] as for [Lock.Release].
func Do(ctx context.Context, c Config, name string, o Options, f func(ctx context.Context, l *Lock) error) (err error) {
	l, err := Acquire(ctx, c, name, o)
	if err != nil {
		return err
	}
	held, stop := l.within(ctx)
	defer func() { // also if f panics
		stop()
		if rerr := l.Release(ctx); !errors.Is(err, ErrLost) {
			err = errors.Join(err, rerr)
		}
	}()
	return f(held, l)
}

// Stat describes a lock. The error matches [ErrRefused] if the server reports that the name is no lock. A server without [FeatureTokens] only reports
// whether the directory exists.
func Stat(ctx context.Context, c Config, name string) (Status, error) {
	e, err := c.resolve()
	if err != nil {
		return Status{}, err
	}
	s, err := connect(ctx, e)
	if err != nil {
		return Status{}, withEnd(ctx, err)
	}
	defer s.leave(ctx)
	i, err := s.status(ctx, name)
	if err == nil && i.refusal != "" {
		err = fmt.Errorf("%w: %s", ErrRefused, i.refusal)
	}
	return i, withEnd(ctx, err)
}
