package lock

import "context"

// Acquire is AcquireOrWait of a session that does not wait.
func (s *Session) Acquire(ctx context.Context, n Name) (Hold, error) {
	hold, _, err := s.AcquireOrWait(ctx, n, nil)
	return hold, err
}

// Release is ReleaseOrWait of a session that does not wait.
func (s *Session) Release(ctx context.Context, n Name) error {
	_, _, err := s.ReleaseOrWait(ctx, n, nil)
	return err
}

// Glob is for the tests of globs.
type Glob = nameGlob

// NewGlob compiles a glob.
func NewGlob(text string) (Glob, error) { return newGlob(text) }

// TakeOver hands the table an event as Run does.
func TakeOver(t *Table, event Event) { t.takeOver(event) }

// Nodes says how many names the table keeps in memory; 1 is the root alone.
func Nodes(t *Table) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.nodes)
}

// Lost says whether and how the session lost a lock of the name, since it last tried to release one of that name.
func Lost(s *Session, n Name) (LostError, bool) {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	lost, ok := s.lost[n]
	return lost, ok
}

// Accounts says how many accounts the table keeps in memory.
func Accounts(t *Table) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.accounts)
}

// Polls says of how many clients that tried in vain the table knows.
func Polls(t *Table) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, l := range t.polls.accounts {
		n += l.Len()
	}
	return n
}

// MaxPolls is how many polled locks are remembered of one account or address.
const MaxPolls = maxPolls

// MaxLost is how many lost locks a session remembers.
const MaxLost = maxLost
