package control

// MaxPass is how long a line for the library may be.
const MaxPass = maxPass

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
