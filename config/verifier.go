package config

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"sync"
)

// ErrLogin is the error for an unknown account, a wrong password, and an address from which the account cannot log in. It is the same for all three.
var ErrLogin = errors.New("login incorrect")

// ErrGone is the error for a client that hung up before its password was checked.
var ErrGone = errors.New("the client has gone")

// Attempt is one try to log in.
type Attempt struct {
	Name, Password string
	From           netip.Addr
	Gone           func() bool // reports whether the client has hung up; nil: it has not
}

// maxVerified limits the passwords that a Verifier remembers.
const maxVerified = 1024

// digest identifies a pair of a hash and a password.
type digest [sha256.Size]byte

// Verifier checks passwords. Hashes are slow by design, and old clients log in for each lock. So a Verifier remembers a digest of each password that
// was right. The key of the digests is a secret of this process.
//
// The time of a login does not show whether an account exists: the password for an unknown name is checked against the hash of an account, the same
// one for each name. A right password may be checked fast.
//
// Several goroutines may use a Verifier. It keeps its memory over reloads.
type Verifier struct {
	slots  chan struct{} // holds a value for each slow hash under way
	secret [32]byte

	mu       sync.Mutex
	verified map[digest]struct{}
}

// NewVerifier returns a Verifier that computes at most n slow hashes at a time, but at least one. Each takes 19 MiB of memory and one processor.
func NewVerifier(n int) *Verifier {
	v := &Verifier{slots: make(chan struct{}, max(n, 1)), verified: make(map[digest]struct{})}
	rand.Read(v.secret[:]) // never fails
	return v
}

// Login returns the account with the name of the attempt if its password is right and it may log in from the address, else [ErrLogin]. It waits for
// its turn to compute a slow hash. If ctx ends before that, Login returns the cause of ctx; if the client has hung up by then, [ErrGone].
//
// For an account that may not log in from the address Login computes no hash, but waits for its turn. A caller that rounds up the time of its reply
// hides the difference.
func (v *Verifier) Login(ctx context.Context, accounts []Account, a Attempt) (Account, error) {
	i := slices.IndexFunc(accounts, func(account Account) bool { return account.Name == a.Name })
	switch {
	case i >= 0 && accounts[i].allows(a.From):
		if err := v.check(ctx, accounts[i].Password, a, true); err != nil {
			return Account{}, err
		}
		return accounts[i], nil
	case i >= 0:
		if err := v.acquireSlot(ctx, a); err != nil {
			return Account{}, err
		}
		v.releaseSlot()
	case len(accounts) > 0:
		if err := v.check(ctx, accounts[v.standInIndex(a.Name, len(accounts))].Password, a, false); err != nil {
			return Account{}, err
		}
	}
	return Account{}, ErrLogin
}

// allows reports whether the account may log in from an address. An IPv4 address may arrive in the form ::ffff:10.0.0.5, as it does on a socket for
// both families. A zone is ignored.
func (a Account) allows(from netip.Addr) bool {
	from = from.Unmap().WithZone("")
	return len(a.Networks) == 0 || slices.ContainsFunc(a.Networks, func(n Network) bool { return n.Contains(from) })
}

// check returns ErrLogin unless the hash is that of the password. Without remember it neither reads nor adds digests: a stranger that guesses the
// password of another account must not get a faster reply.
func (v *Verifier) check(ctx context.Context, text string, a Attempt, remember bool) error {
	sum := v.digest(text, a.Password)
	if remember && v.isVerified(sum) {
		return nil
	}
	if err := v.acquireSlot(ctx, a); err != nil {
		return err
	}
	defer v.releaseSlot()
	if remember && v.isVerified(sum) {
		return nil // another login with this password had an earlier turn
	}
	h, err := parseHash(text)
	if err != nil {
		return err
	}
	if !h.matches(a.Password) {
		return ErrLogin
	}
	if remember {
		v.remember(sum)
	}
	return nil
}

// acquireSlot waits for a turn to compute a slow hash. Call releaseSlot after it.
func (v *Verifier) acquireSlot(ctx context.Context, a Attempt) error {
	select {
	case v.slots <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if a.Gone != nil && a.Gone() {
		v.releaseSlot()
		return ErrGone
	}
	return nil
}

func (v *Verifier) releaseSlot() { <-v.slots }

// standInIndex returns the index of the account whose hash an unknown name is checked against.
func (v *Verifier) standInIndex(name string, accounts int) int {
	sum := v.digest("", name)
	return int(binary.BigEndian.Uint64(sum[:]) % uint64(accounts))
}

// digest returns the digest of a hash and a password. It has a key, so a dump of it is worth no more than the hash itself.
func (v *Verifier) digest(text, password string) digest {
	mac := hmac.New(sha256.New, v.secret[:])
	_ = binary.Write(mac, binary.BigEndian, uint64(len(text))) // a hash never fails
	mac.Write([]byte(text))
	mac.Write([]byte(password))
	return digest(mac.Sum(nil))
}

func (v *Verifier) isVerified(sum digest) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	_, ok := v.verified[sum]
	return ok
}

// remember adds a digest. When there are too many, it forgets all others: each costs one slow hash again.
func (v *Verifier) remember(sum digest) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.verified) >= maxVerified {
		clear(v.verified)
	}
	v.verified[sum] = struct{}{}
}
