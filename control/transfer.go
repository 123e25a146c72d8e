package control

import "time"

// transfer is what is known of a command that goes on on a goroutine of its own, see Run.
type transfer struct {
	running bool
	kept    []byte // the reply to an ABOR that came meanwhile, until it has its turn
}

// run lets work go on beside Read.
func (c *Conn) run(work func() Reply) {
	c.mu.Lock()
	c.transfer.running = true
	c.mu.Unlock()
	c.works.Go(func() { c.done(work()) })
}

// done sends the final reply of what ran. Only then the next command has its turn, so that nothing overtakes it.
func (c *Conn) done(r Reply) {
	c.mu.Lock()
	dead := c.ended && !c.listens
	if r.Undelivered != nil {
		c.undeliv = append(c.undeliv, r.Undelivered)
	}
	c.mu.Unlock()
	if !dead {
		_ = c.send(r.AppendTo(nil))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.transfer.running = false
	c.lastActive = time.Now()
	c.attention = true // Read may be about to wait, and think that nothing has changed
	if c.watch {
		c.wakeLocked()
	}
}

// Say sends a preliminary reply (1xx, RFC 959 section 4.2) of the command that is being executed. It may be called from
// within Handler.Command, and by what Run runs. It waits for a client that does not read, Options.WriteTimeout at most.
func (c *Conn) Say(r Reply) {
	c.mu.Lock()
	dead := c.ended
	c.mu.Unlock()
	if !dead {
		_ = c.send(r.AppendTo(nil))
	}
}
