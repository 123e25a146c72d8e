package config

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"net/netip"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// ErrLogin says that there is no such account, that its password is another one, or that it may not come from there;
// never which.
var ErrLogin = errors.New("login incorrect")

// ErrGone says that the client did not wait for the answer. Its password was not looked at.
var ErrGone = errors.New("the client has gone")

// Attempt is what somebody who wants to log in says, and what is known of them.
type Attempt struct {
	Name, Password string
	From           netip.Addr
	// Failures are those of late from there: who has the fewest is served first.
	Failures int
	// Gone reports whether the client has hung up; nil: it is there.
	Gone func() bool
}

// maxVerified bounds the passwords that a Verifier remembers.
const maxVerified = 1024

// freePause is the time between two times that memory is given back: that costs as much as a garbage collection, and
// strangers who guess passwords shall not cause one with each.
const freePause = 10 * time.Second

// digest stands for a hash together with the password that it was found to fit.
type digest [sha256.Size]byte

// Verifier checks passwords. Hashes are slow by design, and old clients log in
// for every lock; so a password that was right once is known again by a digest,
// keyed with a secret that this process alone has and never stores.
//
// What an attacker may learn from the time that a login takes: nothing about
// which accounts there are, since an unknown name is checked against the hash of
// one that exists, always the same. A right password may be quick, which tells
// nothing to those who just proved that they know it.
//
// It is for use by several goroutines, and goes on through reloads.
type Verifier struct {
	turns  turns // of slow hashes
	secret [32]byte

	free func() // gives the memory of hashes back to the system

	mu       sync.Mutex
	freed    time.Time // when that was last done
	verified map[digest]struct{}
}

// NewVerifier returns a Verifier that computes at most so many slow hashes at a
// time, at least one; each takes 19 MiB of memory and one processor.
func NewVerifier(concurrent int) *Verifier {
	v := &Verifier{turns: turns{free: max(concurrent, 1)}, verified: make(map[digest]struct{}), free: debug.FreeOSMemory}
	rand.Read(v.secret[:]) // never fails
	return v
}

// Login returns the account of that name if the password is its own and it may come from there, else [ErrLogin]. While
// others are being checked it waits its turn; if ctx ends meanwhile, it returns the cause, and [ErrGone] if the client has
// hung up when its turn comes. A hash once begun is finished.
//
// For an account that may not come from there no hash is made. It waits its turn all the same, so that a caller who
// rounds up the time of its answer tells nobody of the difference.
func (v *Verifier) Login(ctx context.Context, accounts []Account, a Attempt) (Account, error) {
	i := slices.IndexFunc(accounts, func(account Account) bool { return account.Name == a.Name })
	switch {
	case i >= 0 && accounts[i].allows(a.From):
		if err := v.check(ctx, accounts[i].Password, a, true); err != nil {
			return Account{}, err
		}
		return accounts[i], nil
	case i >= 0:
		if err := v.take(ctx, a); err != nil {
			return Account{}, err
		}
		v.turns.done()
	case len(accounts) > 0:
		if err := v.check(ctx, accounts[v.standIn(a.Name, len(accounts))].Password, a, false); err != nil {
			return Account{}, err
		}
	}
	return Account{}, ErrLogin
}

// allows reports whether the account may come from that address. An IPv4 address counts as such also when it arrives as
// one of IPv6 (::ffff:10.0.0.5), as it does on a socket that serves both; a zone is ignored.
func (a Account) allows(from netip.Addr) bool {
	from = from.Unmap().WithZone("")
	return len(a.Networks) == 0 || slices.ContainsFunc(a.Networks, func(n Network) bool { return n.Contains(from) })
}

// check returns ErrLogin unless the hash is that of the password. Without memory it
// neither uses nor adds to what is known: a stranger who guesses the password of
// somebody else's account must not be answered any faster.
func (v *Verifier) check(ctx context.Context, text string, a Attempt, memory bool) error {
	sum := v.digest(text, a.Password)
	if memory && v.knows(sum) {
		return nil
	}
	if err := v.take(ctx, a); err != nil {
		return err
	}
	defer v.turns.done()
	if memory && v.knows(sum) {
		return nil // one of those who were waiting for the same
	}
	h, err := parseHash(text)
	if err != nil {
		return err
	}
	fits := h.fits(a.Password)
	v.giveBack()
	if !fits {
		return ErrLogin
	}
	if memory {
		v.remember(sum)
	}
	return nil
}

// take waits for a turn to compute a slow hash, for a client that is there to hear of it.
func (v *Verifier) take(ctx context.Context, a Attempt) error {
	if err := v.turns.take(ctx, a.Failures); err != nil {
		return err
	}
	if a.Gone != nil && a.Gone() {
		v.turns.done()
		return ErrGone
	}
	return nil
}

// giveBack gives the memory of a hash back to the system: the collector alone would let the server look 19 MiB larger for
// each hash at a time, for minutes. What is left by hashes that follow soon is given back after a later one, or by the collector.
func (v *Verifier) giveBack() {
	v.mu.Lock()
	now := time.Now()
	due := v.freed.IsZero() || now.Sub(v.freed) >= freePause
	if due {
		v.freed = now
	}
	v.mu.Unlock()
	if due {
		v.free()
	}
}

// standIn picks the account whose hash an unknown name is checked against.
func (v *Verifier) standIn(name string, accounts int) int {
	sum := v.digest("", name)
	return int(binary.BigEndian.Uint64(sum[:]) % uint64(accounts))
}

// digest is keyed, so that a dump of it tells no more than the hash itself.
func (v *Verifier) digest(text, password string) digest {
	mac := hmac.New(sha256.New, v.secret[:])
	_ = binary.Write(mac, binary.BigEndian, uint64(len(text))) // a hash never fails
	mac.Write([]byte(text))
	mac.Write([]byte(password))
	return digest(mac.Sum(nil))
}

func (v *Verifier) knows(sum digest) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	_, ok := v.verified[sum]
	return ok
}

// remember adds a digest. When there are too many, all are forgotten: each costs one slow hash again.
func (v *Verifier) remember(sum digest) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.verified) >= maxVerified {
		clear(v.verified)
	}
	v.verified[sum] = struct{}{}
}
