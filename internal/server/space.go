package server

import (
	"context"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock/etcd"
)

// spaceEvery is the time between two checks of the space of etcd.
const spaceEvery = 5 * time.Second

// watchSpace logs when etcd's database is nearly full or full, and reads the values of the metrics, until ctx ends.
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
		if now, err := e.cluster.Overview(ctx); err == nil {
			e.mu.Lock()
			e.overview = now
			e.mu.Unlock()
			e.server.sinks.metrics.EtcdRead(now.Took)
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

// lastOverview returns the servers at the last check.
func (e *election) lastOverview() etcd.Overview {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.overview
}

// leaseLeft returns the time until the lease of the active server ends; 0 for other servers.
func (e *election) leaseLeft() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.term == nil {
		return 0
	}
	return e.term.LeaseLeft()
}
