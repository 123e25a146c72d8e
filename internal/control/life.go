package control

import (
	"time"
)

// Reason says why a connection ended.
type Reason uint8

// The reasons.
const (
	notEnded       Reason = iota
	ReasonClosed          // by the driver or the library
	ReasonQuit            // QUIT
	ReasonEOF             // the client closed it
	ReasonReset           // reset, or given up by TCP
	ReasonIdle            // no command for too long
	ReasonSlow            // it did not read its replies for Options.WriteTimeout
	ReasonTLS             // the TLS handshake failed
	ReasonKicked          // Conn.Kick
	ReasonShutdown        // Listener.Shutdown
)

var reasons = [...]string{
	ReasonClosed: "closed by the server", ReasonQuit: "quit", ReasonEOF: "closed by the client", ReasonReset: "reset",
	ReasonIdle: "idle for too long", ReasonSlow: "did not read its replies", ReasonTLS: "tls handshake failed",
	ReasonKicked: "kicked", ReasonShutdown: "server stops",
}

// String returns a few words for logs.
func (r Reason) String() string {
	if int(r) < len(reasons) && reasons[r] != "" {
		return reasons[r]
	}
	return "not ended"
}

// order is how the connection is to be ended, for Read to find. A higher urgency replaces a lower one.
type order struct {
	urgency urgency
	why     Reason
	reply   Reply // the zero Reply: none
}

type urgency uint8

const (
	orderNone    urgency = iota
	orderDrained         // when the transfer is over
	orderNow
	orderLost // the client cannot be told
)

// Kick ends the connection: a command that waits is withdrawn, the reply (421) is written if that is possible, and the
// connection is closed, also while a transfer runs. It does not wait for that. A command that the library executes at
// the moment is finished first, and a reply that the client does not read has its Options.WriteTimeout.
func (c *Conn) Kick(r Reply) { c.order(order{urgency: orderNow, why: ReasonKicked, reply: r}) }

// shutdown is Kick that lets a transfer finish.
func (c *Conn) shutdown(r Reply) {
	c.order(order{urgency: orderDrained, why: ReasonShutdown, reply: r})
}

func (c *Conn) order(o order) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.urgency > c.ordered.urgency {
		c.ordered = o
	}
	c.wakeLocked()
}

// obey ends the connection as ordered.
func (c *Conn) obey(o order) {
	switch {
	case o.urgency == orderLost:
		c.ended(o.why)
	case o.reply.Code == 0: // the last word was said
		c.wire.finish()
		c.hangUp()
		c.ended(o.why)
	default:
		c.goodbye(o.reply, o.why)
	}
}

// goodbye ends the connection with a reply, if the client lets us write it.
func (c *Conn) goodbye(r Reply, why Reason) {
	c.settle(why) // before there is something new to be acknowledged: the client may be long dead
	c.wire.finish()
	c.answer(r)
	c.hangUp()
	c.ended(why)
}

// Gone reports whether the client has hung up: FIN or RST came, also if there is unread data before it, or the
// connection has ended for another reason. It is also true for a client that sent QUIT and did not wait for the reply.
func (c *Conn) Gone() bool {
	select {
	case <-c.over:
		return true
	default:
	}
	return c.wire.hungUp(hangAny)
}

// GoneWithin reports whether the client hangs up within d, or has. At the end of an upload it tells a killed uploader,
// whose connections end microseconds apart, from a client that waits for its reply. It is for transfers, while which
// Read sees the end at once.
func (c *Conn) GoneWithin(d time.Duration) bool {
	if c.Gone() {
		return true
	}
	if d <= 0 {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c.over:
		return true
	case <-timer.C:
		return c.Gone()
	}
}

// CatchUp waits until Read has looked at everything that has arrived by now, so that the command under way was told of an
// ABOR or QUIT among it; d at most. It is for transfers. Where the system cannot tell what has arrived it does not wait.
func (c *Conn) CatchUp(d time.Duration) {
	received, ok := c.wire.received()
	for until := time.Now().Add(d); ok && c.lookedAt() < received && time.Now().Before(until); {
		time.Sleep(100 * time.Microsecond)
	}
}

func (c *Conn) lookedAt() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.looked
}

// Close closes the connection. The library calls it at the end of each; Kick is gentler: after a Close the client is
// told nothing, and a reply that its TCP has not acknowledged yet counts as lost. After the first time Close does
// nothing.
func (c *Conn) Close() error {
	var err error
	c.done.Do(func() {
		why := ReasonClosed
		if cmd := c.Command(); cmd != nil && cmd.Verb == "QUIT" {
			why = ReasonQuit
		}
		c.ended(why)
		c.listener.dismiss(c)
		c.mu.Lock()
		stream := c.stream
		c.mu.Unlock()
		c.wire.finish()
		err = stream.Close() // with TLS its close_notify, then wire.Close
	})
	return err
}

// ended tells everybody that the connection is over, once.
func (c *Conn) ended(why Reason) {
	c.told.Do(func() {
		c.mu.Lock()
		c.end = why
		cmd := c.current
		c.mu.Unlock()
		c.sawEnd()
		c.settle(why)
		if cmd != nil {
			cmd.interrupt(interruptionBy(why))
		}
		c.closePort() // the transfer knows why
		c.handler.Ended(why)
	})
}

func interruptionBy(why Reason) Interruption {
	if why == ReasonShutdown || why == ReasonKicked || why == ReasonIdle {
		return Stopped
	}
	return Ended
}

func (c *Conn) isOver() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.end != notEnded
}

// sawEnd ends the waiting of GoneWithin.
func (c *Conn) sawEnd() { c.seen.Do(func() { close(c.over) }) }

// settle calls Command.Lost of the replies that the client cannot have got.
func (c *Conn) settle(why Reason) {
	c.mu.Lock()
	calls := c.unheard
	c.unheard = nil
	c.mu.Unlock()
	if len(calls) == 0 || why != ReasonReset && why != ReasonSlow && c.acknowledged() {
		return
	}
	for _, lost := range calls {
		lost()
	}
}

// acknowledged waits up to AckTimeout until the client's TCP has acknowledged all. A client that half-closed before its
// reply was written needs a moment: its acknowledgement may be delayed (RFC 1122 section 4.2.3.2), and nothing tells of
// its arrival.
func (c *Conn) acknowledged() bool {
	for until := time.Now().Add(c.opts.AckTimeout); ; time.Sleep(5 * time.Millisecond) {
		switch {
		case !c.wire.unacked():
			return true
		case c.wire.hungUp(hangReset) || time.Now().After(until): // a reset leaves it as it is
			return false
		}
	}
}

// touch takes note of a sign of life.
func (c *Conn) touch() {
	now := time.Now()
	c.mu.Lock()
	c.lastActive = now
	c.mu.Unlock()
}

// setIdleTimeout changes the idle timeout of the connection.
func (c *Conn) setIdleTimeout(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idleLimit != d {
		c.idleLimit = d
		c.wakeLocked()
	}
}
