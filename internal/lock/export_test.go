package lock

// TakeOver hands the table an event as Run does.
func TakeOver(t *Table, event Event) { t.takeOver(event) }

// Nodes says how many names the table keeps in memory; 1 is the root alone.
func Nodes(t *Table) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.nodes)
}

// Accounts says how many accounts the table keeps in memory.
func Accounts(t *Table) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.accounts)
}

// MaxLost is how many lost locks a session remembers.
const MaxLost = maxLost
