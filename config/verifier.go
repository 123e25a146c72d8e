package config

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// ErrLogin says that there is no such account or that its password is another one; never which.
var ErrLogin = errors.New("login incorrect")

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
	slots  chan struct{} // one token for each slow hash under way
	secret [32]byte

	free func() // gives the memory of hashes back to the system

	mu       sync.Mutex
	freed    time.Time // when that was last done
	verified map[digest]struct{}
}

// NewVerifier returns a Verifier that computes at most so many slow hashes at a
// time, at least one; each takes 19 MiB of memory and one processor.
func NewVerifier(concurrent int) *Verifier {
	v := &Verifier{slots: make(chan struct{}, max(concurrent, 1)), verified: make(map[digest]struct{}), free: debug.FreeOSMemory}
	rand.Read(v.secret[:]) // never fails
	return v
}

// Login returns the account of that name if the password is its own, else
// [ErrLogin]. While others are being checked it waits its turn; if ctx ends
// meanwhile, it returns the cause. A hash once begun is finished.
//
// The networks of the account are not looked at, see [Account.Allows].
func (v *Verifier) Login(ctx context.Context, accounts []Account, name, password string) (Account, error) {
	i := slices.IndexFunc(accounts, func(a Account) bool { return a.Name == name })
	known := i >= 0
	if !known {
		if len(accounts) == 0 {
			return Account{}, ErrLogin
		}
		i = v.standIn(name, len(accounts))
	}
	fits, err := v.check(ctx, accounts[i].Password, password, known)
	switch {
	case err != nil:
		return Account{}, err
	case !known || !fits:
		return Account{}, ErrLogin
	}
	return accounts[i], nil
}

// check reports whether the hash is that of the password. Without memory it
// neither uses nor adds to what is known: a stranger who guesses the password of
// somebody else's account must not be answered any faster.
func (v *Verifier) check(ctx context.Context, text, password string, memory bool) (bool, error) {
	sum := v.digest(text, password)
	if memory && v.knows(sum) {
		return true, nil
	}
	select {
	case v.slots <- struct{}{}:
		defer func() { <-v.slots }()
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	if memory && v.knows(sum) {
		return true, nil // one of those who were waiting for the same
	}
	h, err := parseHash(text)
	if err != nil {
		return false, err
	}
	fits := h.fits(password)
	v.giveBack()
	if memory && fits {
		v.remember(sum)
	}
	return fits, nil
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
