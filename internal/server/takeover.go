package server

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// run stands by, and takes over at this server's turn. It returns nil then, and when the server ends.
func (e *election) run(context.Context) error {
	defer close(e.done)
	t, err := e.cluster.Campaign(e.context)
	if err == nil {
		err = e.takeOver(e.context, t)
	}
	if e.context.Err() != nil {
		return nil
	}
	return err
}

// takeOver begins to serve. If it fails, another server takes over.
func (e *election) takeOver(ctx context.Context, t clusterLog) (err error) {
	s, began := e.server, time.Now()
	s.mu.Lock()
	e.mu.Lock()
	e.term = t
	e.mu.Unlock()
	e.setState(takingOver, fmt.Sprintf("term %d", t.Generation())) // a reload is refused from now on
	s.mu.Unlock()
	v := &service{server: s, term: t, log: t}
	ctx = v.runLog(ctx) // it renews the lease
	if err = v.open(ctx); err == nil {
		v.ports, err = s.openPorts(ctx)
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
	e.setState(active, fmt.Sprintf("term %d, %d locks held, took over in %s", t.Generation(), v.table.Count().Holds, time.Since(began).Round(time.Millisecond)))
	return nil
}

// stop ends the standby or the take-over, and waits for it.
func (e *election) stop() {
	e.cancel()
	<-e.done
}
