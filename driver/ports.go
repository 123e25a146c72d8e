package driver

import "sync/atomic"

// portRange hands out passive ports in turn, so that a port just used is used again
// as late as can be. It is for many sessions at once.
type portRange struct {
	first, count uint32
	next         *atomic.Uint32
}

// attempts is how many ports are tried for one PASV. ftpserverlib v0.32.3 draws all of them
// beforehand (transfer_pasv.go, getPassivePortCandidates), so a thousand would cost a thousand each time.
const attempts = 64

// FetchNext implements ftpserver.PasvPortGetter.
func (r portRange) FetchNext() (exposed, listened int, ok bool) {
	p := int(r.first + r.next.Add(1)%r.count)
	return p, p, true
}

// NumberAttempts implements ftpserver.PasvPortGetter.
func (r portRange) NumberAttempts() int { return min(attempts, int(r.count)) }
