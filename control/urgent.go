package control

// overtake looks, while a transfer is running, for a command that may have its turn now:
// the one at the head if it is urgent, else an ABOR behind it. Clients send NOOP to keep
// the connection alive during a transfer, and ABOR must not wait behind that. Behind
// another transfer it must: it is that one which it aborts.
func (c *Conn) overtake() bool {
	if c.fault.Code == 0 && c.isUrgent(c.head) {
		c.haveHead = false
		c.touch()
		c.executeUrgent(c.head, false)
		return true
	}
	if c.overtook >= 0 || transfers(c.head.Verb) {
		return false
	}
	cmd, at, ok := c.findAbort()
	if ok {
		c.overtook = at
		c.touch()
		c.executeUrgent(cmd, true)
	}
	return ok
}

// findAbort looks for an ABOR among the lines that it has not looked at before, up to the next
// transfer, and tells where in the stream it is.
func (c *Conn) findAbort() (cmd Command, at int64, ok bool) {
	for {
		line, next, ok := c.in.peek(c.in.ahead)
		if !ok {
			return Command{}, 0, false
		}
		cmd, _ := judge(line, c.in.exceeds(line) || c.in.cutting && c.in.ahead == 0)
		if transfers(cmd.Verb) {
			return Command{}, 0, false
		}
		at := c.in.at + int64(c.in.ahead)
		c.in.ahead = next
		if cmd.Verb == "ABOR" {
			return cmd, at, true
		}
	}
}

func (c *Conn) isUrgent(cmd Command) bool {
	return cmd.Verb == "ABOR" || c.urgent != nil && c.urgent.Urgent(c, cmd)
}

// executeUrgent does what the handler decides about a command that comes while a
// transfer is running. The reply of one that overtook others is kept until it would have had
// its turn, so that the client, who counts, gets its replies in the order of its commands.
func (c *Conn) executeUrgent(cmd Command, overtook bool) {
	d := c.handler.Command(c, cmd)
	var r Reply
	switch {
	case d.kind == decidePass && passable(d.line):
		c.urge, c.urgeKept = d.line, overtook
		return
	case d.kind == decideAnswer:
		r = d.reply
	case d.kind == decideClose:
		c.give(order{rank: 2, why: ReasonClosed, reply: d.reply})
		return
	default:
		r = notImplemented
	}
	if !overtook {
		c.answer(r)
		return
	}
	c.mu.Lock()
	c.transfer.kept = r.AppendTo(nil)
	c.mu.Unlock()
}

// handUrge gives the library the urgent line, if the first reply of the transfer was
// written, see transfer. If that was its final one then the transfer is proved to be over
// first: the library writes that of a failed transfer without the mutex that it shares with ABOR.
func (c *Conn) handUrge() bool {
	c.mu.Lock()
	t := &c.transfer
	running, started := t.running(), t.started
	if running && started {
		t.urged(c.urgeKept)
	}
	c.mu.Unlock()
	switch {
	case running && !started:
		return false
	case !running && c.proveIdle():
		return true
	case !running:
		c.mu.Lock()
		t.urged(c.urgeKept)
		c.mu.Unlock()
	}
	c.hand(c.urge)
	c.urge = ""
	return true
}

// proveIdle gives the library a NOOP if the goroutine of a transfer that has its final
// reply might still be at work, see transfer.
func (c *Conn) proveIdle() bool {
	c.mu.Lock()
	needed := c.transfer.unproved
	c.transfer.proving = needed
	c.mu.Unlock()
	if needed {
		c.hand("NOOP")
	}
	return needed
}

// sendKept sends the reply to the ABOR that overtook others.
func (c *Conn) sendKept() {
	c.mu.Lock()
	kept := c.transfer.kept
	c.transfer.kept, c.transfer.keep = nil, false
	c.mu.Unlock()
	c.overtook = -1
	if len(kept) > 0 {
		_ = c.send(kept)
	}
}
