package control

import "time"

// delivery is a reply that the client may not have received, see Command.Lost and Command.Unconfirmed.
type delivery struct {
	cmd    *Command
	failed bool   // the write failed
	end    uint64 // wire.bytesWritten after the reply
	at     time.Time
}

// peer is the state of the client's TCP. In the zero value, which systems without that report return, everything is acknowledged.
type peer struct {
	unacked  uint64 // bytes that were written and not acknowledged
	unsent   uint64 // bytes of these that TCP never sent, because the client's window is full
	finished bool   // its FIN came
	broken   bool   // its reset came, perhaps after a FIN, or TCP gave it up
}

// outcome is whether the client received a reply.
type outcome uint8

const (
	undecided outcome = iota
	received
	uncertain // the client may have read it, or not
	lost
)

// ackDelay is how long a client's TCP may delay an acknowledgement (RFC 1122 section 4.2.3.2).
const ackDelay = 500 * time.Millisecond

// recordDelivery records a reply that was written, or whose write failed.
func (c *Conn) recordDelivery(cmd *Command, err error) {
	if cmd.undo == nil {
		return
	}
	d := delivery{cmd: cmd, failed: err != nil, end: c.wire.bytesWritten.Load(), at: c.wire.lastReply()}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unacknowledged = append(c.unacknowledged, d)
}

// undoLost calls the functions of the replies that the client did not receive. It polls until that is decided: an acknowledgement may
// be delayed (RFC 1122 section 4.2.3.2), and a reset may follow the FIN.
func (c *Conn) undoLost(unacknowledged []delivery) {
	for began := time.Now(); len(unacknowledged) > 0; time.Sleep(5 * time.Millisecond) {
		p, waited, open := c.wire.peer(), time.Since(began), unacknowledged[:0]
		for _, d := range unacknowledged {
			switch outcome := c.outcomeOf(d, p, began.Sub(d.at), waited); {
			case outcome == undecided:
				open = append(open, d)
			case outcome == lost, outcome == uncertain && d.cmd.undoIfUncertain:
				d.cmd.undo()
			}
		}
		if unacknowledged = open; len(open) == 0 {
			return
		}
	}
}

// outcomeOf returns the outcome of a reply. stood is the time from the reply to the end of the connection, waited the time since then.
// A reset after a FIN proves that the client closed without reading the last reply. A reset without a FIN proves nothing about an
// acknowledged reply, or one whose acknowledgement may have been delayed, since a reset carries none.
func (c *Conn) outcomeOf(d delivery, p peer, stood, waited time.Duration) outcome {
	sent := c.wire.bytesWritten.Load()
	acked, last := sent-p.unacked >= d.end, sent == d.end
	var isLost bool
	switch {
	case d.failed:
		return lost
	case p.broken && acked:
		isLost = p.finished && last
	case p.broken:
		isLost = p.finished || sent-p.unsent < d.end || stood > ackDelay
	case !acked && waited < c.server.ackTimeout, acked && p.finished && last && waited < c.server.resetTimeout:
		return undecided
	default:
		isLost = !acked
	}
	switch {
	case isLost:
		return lost
	case p.broken:
		return uncertain
	}
	return received
}
