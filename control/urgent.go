package control

// overtake looks, while a transfer is running, for a command that may have its turn now: one at the head that is urgent, or
// an ABOR, also one behind others. Clients send NOOP to keep
// the connection alive during a transfer, and ABOR must not wait behind that. Behind
// another transfer it must: it is that one which it aborts.
func (c *Conn) overtake() bool {
	if c.fault.Code == 0 && c.head.Verb != "ABOR" && c.urgent != nil && c.urgent.Urgent(c, c.head) {
		c.haveHead = false
		c.touch()
		c.executeUrgent(c.head)
		return true
	}
	if c.overtook >= 0 || transfers(c.head.Verb) {
		return false
	}
	cmd, at := c.head, c.headAt
	if c.fault.Code != 0 || cmd.Verb != "ABOR" {
		var ok bool
		if cmd, at, ok = c.findAbort(); !ok {
			return false
		}
	}
	c.overtook = at
	c.touch()
	c.abort(cmd)
	return true
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

// abort has the handler abort the transfer that is running. The reply to ABOR is kept until it has its turn, behind that of
// the transfer: the client, who counts, gets its replies in the order of its commands.
func (c *Conn) abort(cmd Command) {
	r, ok := c.urgentReply(cmd)
	if !ok {
		return
	}
	c.mu.Lock()
	c.transfer.kept = r.AppendTo(nil)
	c.mu.Unlock()
}

// executeUrgent does what the handler decides about a command that comes while a transfer is running.
func (c *Conn) executeUrgent(cmd Command) {
	if r, ok := c.urgentReply(cmd); ok {
		c.answer(r)
	}
}

func (c *Conn) urgentReply(cmd Command) (Reply, bool) {
	switch d := c.handler.Command(c, cmd); d.kind {
	case decideAnswer:
		return d.reply, true
	case decideClose:
		c.give(order{rank: 2, why: ReasonClosed, reply: d.reply})
		return Reply{}, false
	default:
		return notImplemented, true
	}
}

// sendKept sends the reply to the ABOR that overtook others.
func (c *Conn) sendKept() {
	c.mu.Lock()
	kept := c.transfer.kept
	c.transfer.kept = nil
	c.mu.Unlock()
	c.overtook = -1
	if len(kept) > 0 {
		_ = c.send(kept)
	}
}
