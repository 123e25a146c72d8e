package server

import (
	"context"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock/etcd"
)

// spaceEvery is the time between two checks of the space of etcd.
const spaceEvery = 5 * time.Second

// watchSpace logs when etcd's database is nearly full or full, until ctx ends.
func (e *election) watchSpace(ctx context.Context) error {
	tick := time.NewTicker(spaceEvery)
	defer tick.Stop()
	for {
		if now, err := e.cluster.Space(ctx); err == nil {
			e.mu.Lock()
			before := e.space
			e.space = now
			e.mu.Unlock()
			e.logSpace(before, now)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (e *election) logSpace(before, now etcd.Space) {
	log := e.server.log.With("bytes", now.Size, "quota", now.Quota)
	switch {
	case now.Full && !before.Full:
		log.Error("etcd has no space left: no lock is granted or released until there is some, and its alarm is ended")
	case now.Full:
	case before.Full:
		log.Info("etcd has space again")
	case now.Nearly() && !before.Nearly():
		log.Warn("etcd's database is nearly full: at its quota no lock is granted or released; see auto-compaction-retention and quota-backend-bytes")
	}
}

// lastSpace returns the space of etcd at the last check.
func (e *election) lastSpace() etcd.Space {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.space
}
