package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock/etcd"
)

// run stands by, and takes over at this server's turn. It returns nil then, and when the server ends.
func (e *election) run(context.Context) error {
	defer close(e.done)
	t, err := e.cluster.Campaign(e.context)
	if err == nil {
		err = e.takeOverInTime(t)
	}
	if e.context.Err() != nil {
		return nil
	}
	return err
}

// takeOverInTime calls takeOver. If that makes no progress for the limit, such as when a file system hangs, this server resigns and ends, so that another one
// takes over. Then takeOver may continue until the end of the process: it makes and removes only files of the server itself.
func (e *election) takeOverInTime(t clusterLog) error {
	taken := make(chan error, 1)
	go func() { taken <- e.takeOver(e.context, t) }()
	tick := time.NewTicker(e.limit / 8)
	defer tick.Stop()
	seen, since := int64(0), time.Now()
	for {
		select {
		case err := <-taken:
			return err
		case <-tick.C:
		}
		if n := e.progress.Load(); n != seen {
			seen, since = n, time.Now()
		}
		if time.Since(since) < e.limit || !e.endTakeOver() {
			continue
		}
		e.cancel()
		e.server.fail(fmt.Errorf("%w: it has not begun to serve within %s: a file system hangs, or etcd is slow", etcd.ErrHandOver, e.limit))
		(&service{server: e.server, term: t}).resign()
		return nil
	}
}

// endTakeOver ends the take-over: this server serves, or gives up. It returns false if that was decided before.
func (e *election) endTakeOver() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	before := e.decided
	e.decided = true
	return !before
}

// takeOver begins to serve. If it fails, another server takes over.
func (e *election) takeOver(ctx context.Context, t clusterLog) (err error) {
	s, began := e.server, time.Now()
	s.mu.Lock()
	e.mu.Lock()
	e.term = t
	e.mu.Unlock()
	e.setState(takingOver, fmt.Sprintf("term %d, since %s", t.Generation(), began.UTC().Format(time.RFC3339))) // a reload is refused from now on
	s.mu.Unlock()
	v := &service{server: s, term: t, log: t}
	ctx = v.runLog(ctx) // it renews the lease
	if err = v.open(ctx); err == nil {
		v.ports, err = s.openPorts(ctx)
	}
	if !e.endTakeOver() { // takeOverInTime resigns
		return errors.Join(err, v.close(false))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("taking over: %w", err), v.close(true))
	}
	for i, p := range v.ports {
		v.gates = append(v.gates, newGate(p.Listener))
		v.ports[i].Listener = v.gates[i]
	}
	v.serve()
	t.Serve()
	s.run("checking the files", e.watchFiles)
	e.setState(active, fmt.Sprintf("term %d, %d locks held, took over in %s", t.Generation(), v.table.Count().Holds, time.Since(began).Round(time.Millisecond)))
	return nil
}

// stop ends the standby or the take-over, and waits for it.
func (e *election) stop() {
	e.cancel()
	<-e.done
}
