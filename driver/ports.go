package driver

import "sync/atomic"

// livePorts hands out the passive ports of the settings of the moment, in turn, so that a port
// just used is used again as late as can be. It is for many sessions at once.
type livePorts struct {
	settings *atomic.Pointer[Settings]
	next     *atomic.Uint32
}

// attempts is how many ports are tried for one PASV. ftpserverlib v0.32.3 draws all of them
// beforehand (transfer_pasv.go, getPassivePortCandidates), so a thousand would cost a thousand each time.
const attempts = 64

// FetchNext implements ftpserver.PasvPortGetter. Port 0 is the kernel's choice.
func (p livePorts) FetchNext() (exposed, listened int, ok bool) {
	s := p.settings.Load()
	if s.FirstPort == 0 {
		return 0, 0, true
	}
	count := uint32(s.LastPort-s.FirstPort) + 1
	port := int(uint32(s.FirstPort) + p.next.Add(1)%count)
	return port, port, true
}

// NumberAttempts implements ftpserver.PasvPortGetter.
func (p livePorts) NumberAttempts() int { return attempts }
