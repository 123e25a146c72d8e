// Package locksmith holds locks on an FTP server. It is the client side of ftplockd, and works with other FTP servers, such as vsftpd.
//
// A lock is a directory: MKD makes it for exactly one client, RMD removes it (The Perl Journal, "Resource Locking Over
// Networks", 2002). [Dial] returns a [Client], which is one connection. [Client.Do] runs a function under a lock; [Client.Acquire] and
// [Client.TryAcquire] return a [Lock], which must be released. A client may hold several locks, and look at locks without taking them.
//
// # Leases
//
// [Lock.Context] ends before ftplockd can grant the lock to another client. The server can do that at the end of the lock's age, when the lock was
// idle for too long (max_idle), or some time after its connection has ended ([Server].Grace). A Lock counts each of these from before it sent the
// last request that the server answered, and takes off a margin of two seconds, or of a fifth of the shortest of them. It sends a request each second.
// If the connection is lost, it connects again and takes the lock up again by the job's nonce (SITE LOCK AS).
//
// # Caveats
//
//   - If an administrator breaks the lock, up to a second passes before the context ends. Have ftplockd protect the files, or compare fencing tokens.
//   - Time in suspend counts on Linux only. A program that wakes after the end of a lease finds its context alive for up to a second; [Lock.Valid]
//     is exact.
//   - A Client reads the facts of locks (SITE LOCK FACTS in FEAT), and no texts of replies. An ftplockd without facts is like another server.
//   - Other servers have no tokens, no leases and no queue: [Client.Missing] lists that. A lock counts as lost when its directory is gone or
//     has another time, which vsftpd tells to the minute, and when the server does not answer for a minute. Release looks first and then sends RMD;
//     no FTP server does both in one step. A lost reply to MKD leaves a directory there ([ErrUnknown]).
//   - Under TLS, data connections resume the session of the control connection by tickets. A server that demands session
//     ids instead (RFC 5246 section 7.3) refuses them: package crypto/tls has tickets only.
//
// # Errors
//
// Errors match, with errors.Is, one of [ErrHeld], [ErrRefused], [ErrLogin], [ErrUnreachable], [ErrTLS], [ErrLost] and [ErrUnknown], or the cause of
// the context that ended.
//
// Start reading at [Client.Do].
package locksmith

// Options say how a lock is held.
type Options struct {
	// Shared demands a lock that is held together with others; a lock that is held alone is released and refused. See the key
	// "shared" of ftplockd's rules.
	Shared bool
	// Renew asks ftplockd for a full age (SITE LOCK RENEW) whenever half of it is over.
	Renew bool
	// Waiting, if it is set, is called each time MKD was refused since another client holds the lock. It must not block.
	Waiting func(*HeldError)
}
