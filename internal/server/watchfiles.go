package server

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock/etcd"
)

// checkFiles returns why one of several servers cannot serve its files. It writes nothing. It may wait for a file system.
func (s *server) checkFiles() error {
	c := s.logins.Load()
	if _, err := os.Stat(c.Root); err != nil {
		return fmt.Errorf("root: %w", err)
	}
	return checkShared(c)
}

// handOverAfter returns the time after which the active server hands over because it cannot serve its files. If a file system hangs on all machines, each
// standby must lose its election key before, or the next server would hang, too. A standby detects a hang within checkEvery and readyWithin. Then
// it stops renewing the lease of its key. So the key is gone two ttl later, even if etcd is slow.
func handOverAfter(ttl time.Duration) time.Duration { return checkEvery + readyWithin + 2*ttl }

// watchFiles checks the files of the active server until ctx ends. It returns an error that matches ErrHandOver if no check has succeeded for filesLimit,
// and another server was ready all that time.
func (e *election) watchFiles(ctx context.Context) error {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	var since time.Time // zero: the last check has succeeded, or no other server was ready
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		err := e.await(ctx, e.files)
		switch {
		case err == nil || !e.otherIsReady(ctx):
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
			e.server.log.Warn("this server cannot serve its files, and hands over unless that ends", "within", e.filesLimit.String(), "err", err)
		case time.Since(since) >= e.filesLimit:
			return fmt.Errorf("%w: %w", etcd.ErrHandOver, err)
		}
	}
}

// otherIsReady reports whether another server stands by. It is false if etcd does not answer.
func (e *election) otherIsReady(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	now, err := e.cluster.Overview(ctx)
	return err == nil && now.Standbys > 0
}
