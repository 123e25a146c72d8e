package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ftplockd/ftplockd/internal/event"
	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/etcd"
)

// election is a server's part in a cluster of several: it stands by until it is its turn, takes over, and serves then. A server has
// one turn: when that is over the process ends, and the service manager starts it again.
type election struct {
	server  *server
	options etcd.Options
	reach   reachCluster

	context context.Context // of standing by and taking over
	cancel  context.CancelFunc
	over    chan struct{} // closed when that has ended

	mu      sync.Mutex
	cluster cluster // nil: etcd was not reached yet
	now     clusterState
	term    clusterLog   // nil before it is this server's turn
	told    clusterState // what was told last
}

func newElection(s *server, o etcd.Options, reach reachCluster) *election {
	e := &election{server: s, options: o, reach: reach, over: make(chan struct{}), now: clusterState{name: standby}}
	e.context, e.cancel = context.WithCancel(s.context)
	return e
}

// clusterState is what a server of several is. The zero value is for one that is the only one.
type clusterState struct {
	name   string
	detail string // for people
}

// The names of states.
const (
	standby    = "standby"
	takingOver = "taking over"
	active     = "active"
	suspended  = "suspended" // it cannot prove that it is the active one, and changes nothing
	steppedOut = "deposed"   // another server takes over
)

var clusterStates = []string{standby, takingOver, active, suspended, steppedOut}

// String says all that is not about one moment.
func (c clusterState) String() string {
	if c.detail == "" || c.name == active {
		return c.name
	}
	return c.name + ": " + c.detail
}

// clusterState says what the server is.
func (s *server) clusterState() clusterState {
	if s.election == nil {
		return clusterState{}
	}
	return s.election.state()
}

// state asks nobody: it is quick.
func (e *election) state() clusterState {
	e.mu.Lock()
	defer e.mu.Unlock()
	state := e.now
	switch {
	case state.name == standby && e.cluster != nil:
		state.detail = "nobody is active"
		if e.cluster.Silent() {
			state.detail = etcdSilent
		} else if leader, ok := e.cluster.Leader(); ok {
			state.detail = leader.Name + " is active"
		}
	case state.name == active:
		if err := e.term.Valid(); err != nil {
			state = clusterState{suspended, reasonOf(err)}
		}
	}
	return state
}

// reasonOf is why a server is suspended.
func reasonOf(err error) string {
	var s *lock.SuspendedError
	if errors.As(err, &s) {
		return s.Reason
	}
	return err.Error()
}

// enter goes to another state.
func (e *election) enter(name, detail string) {
	e.mu.Lock()
	e.now = clusterState{name, detail}
	e.mu.Unlock()
	e.tell()
}

// tell tells everybody of the state if it has changed.
func (e *election) tell() {
	now := e.state()
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case now.name == standby && now.detail == "": // nothing is known yet
		return
	case now.name == e.told.name && (now.detail == e.told.detail || now.name == suspended):
		return
	}
	what := event.Event{Kind: event.Cluster, Cause: now.name, Reason: now.detail}
	if e.told.name == suspended && now.name == active {
		what.Cause, what.Reason = "resumed", ""
	}
	e.told = now
	e.server.watched.bus.Publish(what)
	e.server.tellManager("STATUS=" + now.String())
}

// lookEvery is how often the state is looked at.
const lookEvery = 200 * time.Millisecond

// watch tells of changes of the state until ctx ends.
func (e *election) watch(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			e.tell()
		case <-ctx.Done():
			return nil
		}
	}
}

// etcdSilent is why a standby does not know who is active.
const etcdSilent = "etcd does not answer"

// reachEvery is how often etcd is tried while none of its members answers.
const reachEvery = time.Second

// run stands by, and takes over when it is this server's turn. It returns nil then, or when it is to end.
func (e *election) run(context.Context) error {
	defer close(e.over)
	c, err := e.open(e.context)
	if err != nil {
		return nil
	}
	t, err := c.Campaign(e.context)
	if err == nil {
		err = e.takeOver(e.context, t)
	}
	if e.context.Err() != nil {
		return nil
	}
	return err
}

// open reaches etcd, however long it takes: after a loss of power of all machines it may come up later.
func (e *election) open(ctx context.Context) (cluster, error) {
	for said := (time.Time{}); ; {
		c, err := e.reach(ctx, e.options)
		if err == nil {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.cluster = c
			return c, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if time.Since(said) >= time.Minute {
			said = time.Now()
			e.server.log.Warn("etcd is tried again each second", "err", err)
		}
		e.enter(standby, etcdSilent)
		select {
		case <-time.After(reachEvery):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// takeOver begins to serve. If it cannot, another server may.
func (e *election) takeOver(ctx context.Context, t clusterLog) (err error) {
	s, began := e.server, time.Now()
	s.mu.Lock()
	e.mu.Lock()
	e.term = t
	e.mu.Unlock()
	e.enter(takingOver, fmt.Sprintf("term %d", t.Generation())) // no reload from now on
	s.mu.Unlock()
	v := &service{server: s, term: t}
	ctx = v.keepLog(ctx, t) // it renews the lease
	if err = v.open(ctx, v.openTerm); err == nil {
		v.ports, err = s.openPorts(ctx)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("taking over: %w", err), v.close(true))
	}
	v.serve()
	e.enter(active, fmt.Sprintf("term %d, %d locks held, took over in %s", t.Generation(), v.table.Count().Holds, time.Since(began).Round(time.Millisecond)))
	return nil
}

// end ends standing by, or taking over, and waits for that.
func (e *election) end() {
	e.cancel()
	<-e.over
}

// close gives back what the server has of etcd. The service is closed before.
func (e *election) close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cluster == nil {
		return nil
	}
	return e.cluster.Close()
}
