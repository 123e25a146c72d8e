package journal

import "os"

// Ready returns nil if the journal can be synced: it does so. An error says why no lock can be granted.
func (s *Store) Ready() error {
	s.mu.Lock()
	err, log := s.readyLocked(), s.log
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return log.sync(log.end.Load() + 1)
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
