package journal

import "os"

// grantRoom is how much room Ready wants: of a grant and its release, with names of the usual length.
const grantRoom = 4 << 10

// Ready returns nil if a grant could be recorded: there is room for it, and the journal can be synced; it does so. An error
// says why no lock can be granted.
func (s *Store) Ready() error {
	log, err := s.readyLog()
	if err != nil {
		return err
	}
	return log.sync(log.end.Load() + 1)
}

// readyLog returns the log if it has room for a grant.
func (s *Store) readyLog() (*log, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.readyLocked(); err != nil {
		return nil, err
	}
	l := s.log
	if err := l.makeRoom(l.end.Load() + l.keep + grantRoom); err != nil {
		if full(err) {
			return nil, bare(err)
		}
		return nil, l.failure.set(err)
	}
	return l, nil
}

// Size returns how many bytes the journal takes, its history included. What cannot be looked at counts nothing.
func (s *Store) Size() (bytes int64) {
	if info, err := os.Stat(s.dir.journal()); err == nil {
		bytes = info.Size()
	}
	entries, _ := os.ReadDir(s.dir.archive())
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil {
			bytes += info.Size()
		}
	}
	return bytes
}
