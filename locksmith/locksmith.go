// Package locksmith holds locks on an FTP server. It is the client side of ftplockd, and works with other FTP servers, such as vsftpd.
//
// A lock is a directory: MKD makes it for exactly one client, RMD removes it (The Perl Journal, "Resource Locking Over
// Networks", 2002). [Dial] returns a [Client], which is one connection. [Client.Do] runs a function under a lock; [Client.Acquire] and
// [Client.TryAcquire] return a [Lock], which must be released. A client may hold several locks. [Client.Info] describes a lock.
//
// # Leases
//
// [Lock.Context] ends before ftplockd can grant the lock to another client. The server can do that at the end of the lock's age, when the lock was
// idle for too long (max_idle), or some time after its connection has ended ([Server].Grace). A Lock counts each of these from before it sent the
// last request that the server answered, and subtracts a margin of two seconds, or of a fifth of the shortest of them. It sends a request each
// second. If the connection is lost, it connects again and adopts the lock by the job's nonce (SITE LOCK AS).
//
// # Caveats
//
//   - If an administrator breaks the lock, the context ends up to a second later. Let ftplockd protect the files, or compare fencing tokens.
//   - Time in suspend counts on Linux only. When a machine wakes after the end of a lease, the context is alive for up to a second; [Lock.Valid]
//     is exact.
//   - A Client reads the facts of locks (SITE LOCK FACTS in FEAT), and not the texts of replies. For it, an ftplockd without facts is another server.
//   - Other servers have no tokens, no leases and no queue. A lock is lost when its directory is gone or
//     has another time (vsftpd reports minutes), or when the server has not answered for a minute. Release checks the directory and then sends RMD;
//     no FTP server does both in one step. After a lost reply to MKD a directory may remain ([ErrUnknown]).
//   - Under TLS, data connections resume the session of the control connection by tickets. A server that requires session
//     ids instead (RFC 5246 section 7.3) refuses them: package crypto/tls has tickets only.
//
// # Errors
//
// Errors match, with errors.Is, one of [ErrHeld], [ErrRefused], [ErrLogin], [ErrUnreachable], [ErrTLS], [ErrLost] and [ErrUnknown], or the cause of
// the context that ended.
//
// Start reading at [Client.Do].
package locksmith

// Options are the options of an acquisition.
type Options struct {
	// Shared requests a lock that several clients hold together. If the server grants it to one holder alone, Acquire releases it and returns
	// ErrRefused. See the key "shared" of ftplockd's rules.
	Shared bool
	// Renew gives the lock a full age (SITE LOCK RENEW) whenever half of it is over.
	Renew bool
	// Waiting, if it is set, is called each time MKD is refused because another client holds the lock. It must not block.
	Waiting func(*HeldError)
}
