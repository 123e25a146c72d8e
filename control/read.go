package control

import (
	"io"
	"strings"
	"time"
)

// Read gives the library its next command line. That it is called means that the library
// is through with the line before. Commands that are answered here are
// executed meanwhile. It returns io.EOF when the connection is over, and no other error.
func (c *Conn) Read(p []byte) (int, error) {
	if len(c.rest) == 0 && !c.next() {
		c.end(ReasonClosed) // if nobody has yet; if somebody is about to, waits for it
		if c.mayListen() {
			c.works.Wait() // what ran was told to end, and has a last reply
		}
		c.leaveIfClosed()
		return 0, io.EOF
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// next gets a line for the library into c.rest. It reports false if all is over.
func (c *Conn) next() bool {
	if !c.enter() {
		return false
	}
	ok := c.serve()
	return c.exit() && ok
}

// enter takes note that the library asks for a command. It reports false if all is over.
func (c *Conn) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inRead = !c.ended && !c.closed
	return c.inRead
}

// exit takes note that Read returns. It reports false if Close was called meanwhile.
func (c *Conn) exit() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inRead = false
	return !c.closed
}

// mayListen reports whether the client has said its last word, and may still hear ours.
func (c *Conn) mayListen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.listens && !c.closed
}

// leaveIfClosed does what a Close left to Read.
func (c *Conn) leaveIfClosed() {
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed {
		c.works.Wait()
		c.leave(c)
	}
}

// serve executes commands until there is one for the library, in c.rest, or the
// connection is over, and then it has told the handler.
func (c *Conn) serve() bool {
	for {
		running, over := c.look()
		if over {
			return false
		}
		if c.step(running) {
			if len(c.rest) > 0 {
				return true
			}
			continue
		}
		if !c.fill(running) {
			return false
		}
	}
}

// look obeys orders to end the connection and reports whether a transfer is running.
func (c *Conn) look() (running, over bool) {
	c.mu.Lock()
	c.attention = false
	o, closed := c.order, c.closed
	running = c.transfer.running
	idleLimit, lastActive := c.idleLimit, c.lastActive
	c.mu.Unlock()
	if idleLimit != c.idleTime {
		c.idleTime = idleLimit
		c.armIdle(lastActive.Add(idleLimit))
	}
	switch {
	case closed:
		c.finish(ReasonClosed)
	case o.rank == 0 || o.why == ReasonShutdown && running:
		return running, false
	case o.silent:
		c.finish(o.why)
	default:
		c.goodbye(o.reply, o.why)
	}
	return running, true
}

// step does the next thing that can be done without more input, and reports whether there was any.
func (c *Conn) step(running bool) bool {
	switch {
	case c.waiter != nil && c.poll():
		return true
	case !c.haveHead && !c.load():
		return false
	case c.waiter != nil: // a line that arrives while a command waits withdraws it
		c.withdraw()
		return true
	case running:
		return c.overtake()
	}
	c.haveHead = false
	c.touch()
	if c.headAt == c.overtook {
		c.sendKept()
	} else {
		c.execute()
	}
	return true
}

// load takes the next line of the input for the head of the queue.
func (c *Conn) load() bool {
	line, at, tooLong, ok := c.in.next()
	if !ok {
		return false
	}
	c.haveHead, c.headAt = true, at
	c.head, c.fault = judge(line, tooLong)
	return true
}

// execute does what the handler decides about the command at the head.
func (c *Conn) execute() {
	if c.fault.Code != 0 {
		c.answer(c.fault)
		return
	}
	switch d := c.handler.Command(c, c.head); d.kind {
	case decideAnswer:
		c.answer(d.reply)
	case decidePass:
		c.pass(d.line)
	case decideRun:
		c.run(d.work)
	case decideWait:
		c.waiter = d.waiter
	case decideTLS:
		c.startTLS(d.reply, d.config)
	case decideClose:
		c.give(order{rank: 2, why: ReasonClosed, reply: d.reply})
	default:
		c.answer(notImplemented)
	}
}

var (
	notImplemented = Reply{Code: 502, Text: "command not implemented"}
	tooLongToPass  = Reply{Code: 500, Text: "line too long"}
)

// pass hands the line to the library.
func (c *Conn) pass(line string) {
	if !passable(line) {
		c.answer(tooLongToPass)
		return
	}
	verb, _, _ := strings.Cut(line, " ")
	c.mu.Lock()
	c.quit = strings.EqualFold(verb, "QUIT")
	c.mu.Unlock()
	c.restBuf = append(append(c.restBuf[:0], line...), '\r', '\n')
	c.rest = c.restBuf
}

// answer writes a reply. If it cannot, that is noted and Read ends the connection.
func (c *Conn) answer(r Reply) {
	if r.Undelivered != nil {
		c.mu.Lock()
		c.undeliv = append(c.undeliv, r.Undelivered)
		c.mu.Unlock()
	}
	if cap(c.reply) > inputIdle {
		c.reply = nil // one long reply is no reason to keep so much
	}
	c.reply = r.AppendTo(c.reply[:0])
	_ = c.send(c.reply)
}

// poll asks the waiter, and reports whether its waiting is over.
func (c *Conn) poll() bool {
	r, ok := c.waiter.Poll()
	if ok {
		c.waiter = nil
		c.touch()
		c.answer(r)
	}
	return ok
}

// withdraw ends the waiting of a command.
func (c *Conn) withdraw() {
	w := c.waiter
	c.waiter = nil
	c.answer(w.Withdraw())
}

// finish ends the connection without a word.
func (c *Conn) finish(why Reason) {
	if w := c.waiter; w != nil {
		c.waiter = nil
		if r := w.Withdraw(); r.Undelivered != nil {
			r.Undelivered()
		}
	}
	c.end(why)
}

// goodbye ends the connection with a reply, if the client lets us write it.
func (c *Conn) goodbye(r Reply, why Reason) {
	if c.waiter != nil {
		c.withdraw()
	}
	c.settle(why) // before there is something new to be acknowledged: the client may be long dead
	c.wire.finish()
	c.answer(r)
	c.hangUp()
	c.end(why)
}

// touch takes note of a sign of life.
func (c *Conn) touch() {
	now := time.Now()
	c.mu.Lock()
	c.lastActive = now
	c.mu.Unlock()
}
