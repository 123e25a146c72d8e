package control

import "time"

// MaxLine is how long a line may be.
const MaxLine = maxLine

// Usages returns the usage of each command in the table.
func Usages() map[string]string {
	usages := make(map[string]string)
	for name, v := range commands() {
		usages[name] = v.usage
	}
	return usages
}

// Open returns how many passive ports are open.
func (p *Ports) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.open)
}

// SetTimeouts changes the timeouts of connections to come; 0: as it is.
func (s *Server) SetTimeouts(write, ack time.Duration) {
	if write > 0 {
		s.writeTimeout = write
	}
	if ack > 0 {
		s.ackTimeout = ack
	}
}
