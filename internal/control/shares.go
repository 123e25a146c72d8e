package control

// shares counts the passive ports that accounts have, so that none has more than half of the range. Guarded by Ports.mu.
type shares map[string]int

// take counts a port for an account. It reports false if the account has its share of n ports; 0: any number.
func (s shares) take(account string, n int) bool {
	if n > 0 && s[account] >= max(1, n/2) {
		return false
	}
	s[account]++
	return true
}

func (s shares) giveBack(account string) {
	if s[account]--; s[account] == 0 {
		delete(s, account)
	}
}

// takeShare is for an account that wants a passive port. The share belongs to the port once that is claimed.
func (p *Ports) takeShare(account string) bool {
	first, last := p.options.Range()
	n := 0
	if first != 0 {
		n = int(last) - int(first) + 1
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.shares.take(account, n)
}

// askForPort closes the port that the client has, and counts another one for its account.
func (c *Conn) askForPort() Reply {
	c.unprepare()
	if !c.server.opts.Ports.takeShare(c.account()) {
		return Reply{Code: 425, Text: "your account has half of all ports for data connections already"}
	}
	return Reply{}
}
