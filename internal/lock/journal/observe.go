package journal

import (
	"context"
	"os"
)

// Ready returns nil if a grant could be recorded now: there is space for it, and the journal can be synced. It syncs the journal, and
// returns when the disk answers.
func (l *Log) Ready() error {
	if err := l.failure.get(); err != nil {
		return err
	}
	ctx := context.Background()
	l.mu.Lock()
	next := l.last + 1
	l.mu.Unlock()
	if err := l.MakeRoom(ctx, next); err != nil {
		return err
	}
	return l.sync(ctx, l.synced.Load()+1)
}

// Size returns how many bytes the journal takes, its history and the space ahead included. A file that cannot be read counts nothing.
func (l *Log) Size() (bytes int64) {
	entries, _ := os.ReadDir(l.dir.segments())
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil {
			bytes += info.Size()
		}
	}
	return bytes
}
