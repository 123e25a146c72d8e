// Package locksmith holds a lock on an FTP server for a program that does something else meanwhile: the client side of
// ftplockd, which works against any other FTP server too.
//
// A lock is a directory that MKD makes for exactly one client (The Perl Journal, "Resource Locking Over Networks",
// 2002). [Acquire] takes it, waiting for its turn; a [Lock] keeps the connection alive, sees when it is lost, and gives it back.
//
// Against ftplockd a waiting Acquire has a place in the server's queue (SITE WAIT), a reply that was lost is cleared up with a
// nonce (SITE LOCK AS), and [Lock.Done] is closed as soon as the server no longer knows the hold. Against other servers
// Acquire polls, and a lock counts as lost when its directory is gone or is another one than the one that was made.
//
// What it cannot promise:
//
//   - Between the end of a hold and Done there is a time ([Options.Check]); who must not write in it has the lock protect its files on
//     ftplockd, or compares tokens. Against other servers there are no tokens.
//   - A connection that was lost is made again, and the hold is found by its token; meanwhile nobody here knows whether it stands.
//   - Other servers tell one directory from the next by its modification time (MLST, MDTM, or the listing of its parent, which is to the
//     minute on vsftpd): one that was removed and made again in the same moment looks the same, and one that somebody has put a file
//     into looks like another. Release looks first and says RMD then; no FTP server does both in one step.
//   - Against other servers a lost reply to MKD can be cleared up only by looking at the directory, which cannot tell ours from
//     somebody else's: such a lock is not taken to be ours.
//   - Under TLS data connections resume the session of the control connection by tickets. Servers that insist on reuse and have switched
//     tickets off cannot be satisfied: Go knows no other way.
//
// A lock has one connection, and while a transfer has that for longer than a Check a second one to look with, on ftplockd.
//
// Start reading at [Acquire].
package locksmith

import "time"

// Options say which lock is wanted, and how it is waited for and kept.
type Options struct {
	Server Server
	Path   string // of the lock: absolute, or relative to the directory after login

	// Wait is how long Acquire waits for a lock that is held: 0 until its context ends; below 0: it tries once. A server that
	// refuses MKD without anything being there is asked three times: the lock may have been given back between the two looks.
	Wait time.Duration
	// Poll is the mean pause between two tries where the server does not let MKD wait; each one is a random time
	// between half and one and a half of it. 0: 3 s, as in the article.
	Poll time.Duration
	// Keepalive is the longest time without a command while the lock is held. 0: 5 s.
	Keepalive time.Duration
	// Check is how often a server that can tell (SITE LOCK INFO) is asked whether the lock is still ours. 0: 300 ms. Other servers
	// are asked with each Keepalive.
	Check time.Duration
	// Renew asks ftplockd for a full age from now on (SITE LOCK RENEW) whenever half of it is over.
	Renew bool
	// Shared refuses a lock that was granted to be held alone; see the rule key "shared" of ftplockd.
	Shared bool
	// Nonce is the word by which the server knows this job (SITE LOCK AS), of at most 128 visible ASCII characters; "": a random one. Of two
	// jobs of one account and one nonce at the same time, one takes the other's lock over.
	Nonce string

	// Waiting is called, if it is set, when a try was refused and Acquire goes on to wait, with what the server said
	// of the holder, and again when that changes. It must not block.
	Waiting func(Refusal)
}

// Refusal is what a server said when it did not grant a lock.
type Refusal struct {
	Reply  string        // its text, without the code, on one line
	Holder string        // account@address; "" if the server does not say
	Held   time.Duration // for how long at that moment; 0 if it does not say
	At, Of int           // place in the queue and its length; 0 if it does not say
}
