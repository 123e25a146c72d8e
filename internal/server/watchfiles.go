package server

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/ftplockd/ftplockd/config"
	"github.com/ftplockd/ftplockd/internal/lock/etcd"
)

// checkFiles returns why one of several servers cannot serve its files. It may wait for a file system.
func (s *server) checkFiles() error {
	c := s.logins.Load()
	if _, err := os.Stat(c.Root); err != nil {
		return fmt.Errorf("root: %w", err)
	}
	return checkFileSystem(c)
}

// checkFileSystem is checkShared, and waits until the file system of etcd.shared_state and root has answered a write: some answer reads from memory
// when writes hang. It changes only the time of the file of prefixMark, so a late write is harmless. A write that fails, as on a full disk, is an answer.
func checkFileSystem(c *config.Config) error {
	if err := checkShared(c); err != nil || c.Etcd.SharedState == "" {
		return err
	}
	now := time.Now()
	_ = os.Chtimes(sharedMark(c), now, now)
	return nil
}

// handOverAfter returns the time after which the active server hands over because it cannot serve its files. If a file system hangs on all machines, each
// standby must lose its election key before, or the next server would hang, too. A standby detects a hang within checkEvery and readyWithin. Then
// it removes its key; if etcd does not answer it, the key expires after a ttl.
func handOverAfter(ttl time.Duration) time.Duration { return checkEvery + readyWithin + ttl }

// errFiles means that the active server cannot serve its files. It matches ErrHandOver.
var errFiles = fmt.Errorf("%w: it cannot serve its files", etcd.ErrHandOver)

// watchFiles checks the files of the active server until ctx ends. It returns an error that matches errFiles if no check that began in the last
// filesLimit has succeeded, and another server was ready all that time.
func (e *election) watchFiles(ctx context.Context) error {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	var since time.Time // the begin of the first check that failed; zero: the last one has succeeded, or no other server was ready
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		began := time.Now()
		err := e.await(ctx, e.files)
		switch {
		case err == nil || !e.otherIsReady(ctx):
			since = time.Time{}
			continue
		case since.IsZero():
			since = began
			e.server.log.Warn("this server cannot serve its files, and hands over unless that ends", "within", e.filesLimit.String(), "err", err)
		}
		if time.Since(since) >= e.filesLimit {
			return fmt.Errorf("%w: %w", errFiles, err)
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
