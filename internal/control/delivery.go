package control

import "time"

// delivery is a reply whose loss undoes something, see Command.Lost.
type delivery struct {
	lost   func()
	failed bool   // it could not be written
	end    uint64 // how many bytes the wire had taken with its last one
	resent uint32 // peer.resent at that moment
}

// peer is what the system reports of the client's TCP. The zero peer, also for a system that reports nothing, has
// acknowledged all.
type peer struct {
	unacked  uint64 // bytes that were written and not acknowledged
	unsent   uint64 // bytes of these that were never sent: the client's window is full
	resent   uint32 // segments that were sent again, ever
	finished bool   // its FIN came
	broken   bool   // its reset came, behind the FIN if there was one, or TCP gave it up
}

// lateReset is how long the server waits for a reset behind a FIN: a client calls shutdown and close one after the other.
const lateReset = 100 * time.Millisecond

// delivered notes a reply that was written, or could not be.
func (c *Conn) delivered(lost []func(), err error) {
	for _, f := range lost {
		d := delivery{lost: f, failed: err != nil, end: c.wire.sent.Load(), resent: c.wire.resent()}
		c.mu.Lock()
		c.unheard = append(c.unheard, d)
		c.mu.Unlock()
	}
}

// undoLost calls the functions of the replies that the client did not receive. It waits for what decides that, which nothing
// reports: an acknowledgement may be delayed (RFC 1122 section 4.2.3.2), and a reset may follow the FIN.
func (c *Conn) undoLost(unheard []delivery) {
	for began := time.Now(); len(unheard) > 0; time.Sleep(5 * time.Millisecond) {
		p, waited, open := c.wire.peer(), time.Since(began), unheard[:0]
		for _, d := range unheard {
			lost, decided := c.isLost(d, p, waited)
			switch {
			case !decided:
				open = append(open, d)
			case lost:
				d.lost()
			}
		}
		if unheard = open; len(open) == 0 {
			return
		}
	}
}

// isLost reports whether the client did not receive a reply, and whether that is decided after such a wait. A reset proves
// nothing about an acknowledged reply, unless it follows a FIN: then the client closed without reading the last reply.
// Nor does it about one that was sent once: the acknowledgement may have been delayed, and a reset carries none.
func (c *Conn) isLost(d delivery, p peer, waited time.Duration) (lost, decided bool) {
	sent := c.wire.sent.Load()
	acked, last := sent-p.unacked >= d.end, sent == d.end
	switch {
	case d.failed:
		return true, true
	case p.broken && acked:
		return p.finished && last, true
	case p.broken:
		return p.finished || sent-p.unsent < d.end || p.resent > d.resent, true
	case !acked:
		return true, waited >= c.server.ackTimeout
	}
	return false, !p.finished || !last || waited >= lateReset
}
