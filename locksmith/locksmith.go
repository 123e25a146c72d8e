// Package locksmith holds a lock on an FTP server while a program does something else. It is the client side of ftplockd, and
// works against any other FTP server, too.
//
// A lock is a directory: MKD makes it for exactly one client, RMD gives it back (The Perl Journal, "Resource Locking Over
// Networks", 2002). [Do] runs a function under a lock. [Acquire] returns a [Lock], which must be released. A [Client] looks at locks
// without taking one.
//
// A Lock has a lease, which ends before ftplockd can grant the lock to another client: at the lock's age, its idle limit, or its grace after a
// disconnect, counted from before a request was sent that the server answered, less a margin. On Linux time in suspend counts, and a program
// notices it within a second after it wakes. A Lock asks the server once a second whether it
// still stands. If the lock is lost or its lease is over, [Lock.Done] is closed, and contexts made from the lock end. If the connection is lost, the Lock connects again and takes its lock up again. On ftplockd a waiting Acquire
// has a place in the server's queue, and a reply that was lost is cleared up by a nonce (SITE LOCK AS). On other
// servers Acquire tries again and again, and a lock counts as lost when its directory is gone or has another time.
//
// What the package cannot promise:
//
//   - If an administrator breaks the lock, up to a second passes before Done. Have ftplockd protect the files, or compare fencing tokens.
//   - The server does not tell of a rule with on_disconnect = "release" and a grace below that of Options: such a lock may end first.
//   - Other servers have no tokens. They tell one directory from another by its modification time, vsftpd to the minute. A
//     directory that was removed and made again within that time looks the same. Release looks first and then says RMD; no FTP
//     server does both in one step.
//   - On other servers a lost reply to MKD cannot be cleared up: Acquire then says that it does not know ([ErrUnknown]).
//   - Under TLS, data connections resume the session of the control connection by tickets. A server that demands session
//     ids instead (RFC 5246 section 7.3) refuses them: package crypto/tls has tickets only.
//
// Start reading at [Do].
package locksmith

import (
	"context"
	"errors"
	"time"
)

// Options say which lock is wanted, and how it is waited for and kept. The wait is as long as the context of Acquire or Do.
type Options struct {
	Server Server
	Path   string // of the lock: absolute, or relative to the directory after login

	// TryOnce makes Acquire return a *HeldError at once if another client holds the lock, instead of waiting.
	TryOnce bool
	// Shared demands a lock that is held together with others; a lock that is held alone is given back and refused. See the key
	// "shared" of ftplockd's rules.
	Shared bool
	// Renew asks ftplockd for a full age (SITE LOCK RENEW) whenever half of it is over.
	Renew bool

	// Grace has ftplockd end the lock so long after its connection has ended (SITE LOCK DISCONNECT RELEASE), if the server's rule does
	// not end it earlier: the lock of a program that was killed ends soon. A Lock whose server does not answer is lost two seconds, or a
	// fifth of the grace, before that. It is rounded up to seconds. 0: 15 s; less: what the server's rule says.
	Grace time.Duration
	// Poll is the mean pause between two tries on a server where MKD cannot wait. Each pause is a random time between half and one
	// and a half of it. 0: 3 s.
	Poll time.Duration
	// Check is the time between two looks at the lock. 0: 1 s on ftplockd, and 5 s on other servers.
	Check time.Duration
	// Nonce is the word by which the server knows this job (SITE LOCK AS): at most 128 visible ASCII characters. "": a random
	// one. Two jobs of one account with one nonce take the lock from each other.
	Nonce string

	// Waiting, if it is set, is called each time the server says that another client holds the lock. It must not block.
	Waiting func(Refusal)
}

// Do takes the lock, calls f, and gives the lock back. The context of f ends when the lock is lost; its cause is the error of
// the lock then. Do returns what f returned, joined with the error of giving the lock back: ErrLost if f may have worked without it.
func Do(ctx context.Context, o Options, f func(ctx context.Context) error) (err error) {
	l, err := Acquire(ctx, o)
	if err != nil {
		return err
	}
	held, stop := l.Context(ctx)
	defer func() { // also if f panics
		stop()
		if rerr := l.Release(ctx); !errors.Is(err, ErrLost) {
			err = errors.Join(err, rerr)
		}
	}()
	return f(held)
}
