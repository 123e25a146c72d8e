package control

import "time"

// delivery is a reply that the client may not have received, see Command.Lost and Command.Unconfirmed.
type delivery struct {
	cmd    *Command
	failed bool   // the write failed
	end    uint64 // wire.sent after the reply
	at     time.Time
}

// peer is the state of the client's TCP. The zero value, which systems without that report return, has acknowledged everything.
type peer struct {
	unacked  uint64 // bytes that were written and not acknowledged
	unsent   uint64 // bytes of these that were never sent, because the client's window is full
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

// lateReset is how long the server waits for a reset after a FIN: a client calls shutdown, then close.
const lateReset = 100 * time.Millisecond

// delivered notes a reply that was written, or whose write failed.
func (c *Conn) delivered(cmd *Command, err error) {
	if cmd.lost == nil && cmd.uncertain == nil {
		return
	}
	d := delivery{cmd: cmd, failed: err != nil, end: c.wire.sent.Load(), at: c.wire.lastReply()}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unheard = append(c.unheard, d)
}

// undoLost calls the functions of the replies that the client did not receive. It polls until that is decided: an acknowledgement may
// be delayed (RFC 1122 section 4.2.3.2), and a reset may follow the FIN.
func (c *Conn) undoLost(unheard []delivery) {
	for began := time.Now(); len(unheard) > 0; time.Sleep(5 * time.Millisecond) {
		p, waited, open := c.wire.peer(), time.Since(began), unheard[:0]
		for _, d := range unheard {
			switch became := c.became(d, p, began.Sub(d.at), waited); {
			case became == undecided:
				open = append(open, d)
			case became == lost && d.cmd.lost != nil:
				d.cmd.lost()
			case became >= uncertain && d.cmd.uncertain != nil:
				d.cmd.uncertain()
			}
		}
		if unheard = open; len(open) == 0 {
			return
		}
	}
}

// became returns the outcome of a reply. stood is the time from the reply to the end of the connection, waited the time since then.
// A reset after a FIN proves that the client closed without reading the last reply. A reset without a FIN proves nothing about an
// acknowledged reply, or one whose acknowledgement may have been delayed, since a reset carries none.
func (c *Conn) became(d delivery, p peer, stood, waited time.Duration) outcome {
	sent := c.wire.sent.Load()
	acked, last := sent-p.unacked >= d.end, sent == d.end
	decide := func(isLost bool) outcome {
		switch {
		case isLost:
			return lost
		case p.broken:
			return uncertain
		}
		return received
	}
	switch {
	case d.failed:
		return lost
	case p.broken && acked:
		return decide(p.finished && last)
	case p.broken:
		return decide(p.finished || sent-p.unsent < d.end || stood > ackDelay)
	case !acked && waited < c.server.ackTimeout, acked && p.finished && last && waited < lateReset:
		return undecided
	}
	return decide(!acked)
}
