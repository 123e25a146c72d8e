package server

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
	since   time.Time    // of being suspended, while told is that
	space   etcd.Space   // of etcd, as it was a moment ago
}

func newElection(s *server, o etcd.Options, reach reachCluster) *election {
	e := &election{server: s, options: o, reach: reach, over: make(chan struct{}), now: clusterState{name: standby}}
	e.context, e.cancel = context.WithCancel(s.context)
	return e
}

// clusterState is what a server of several is. The zero value is for one that is the only one.
type clusterState struct {
	name   string
	detail string    // for people
	since  time.Time // of suspended; zero: a moment ago
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
	name := c.name
	if !c.since.IsZero() {
		name += " since " + c.since.Format(time.RFC3339)
	}
	if c.detail == "" || c.name == active {
		return name
	}
	return name + ": " + c.detail
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
		if trouble := e.cluster.Trouble(); trouble != "" {
			state.detail = trouble
		} else if leader, ok := e.cluster.Leader(); ok {
			state.detail = leader.String() + " is active"
		}
	case state.name == active:
		if err := e.term.Valid(); err != nil {
			state = clusterState{name: suspended, detail: reasonOf(err)}
			if e.told.name == suspended {
				state.since = e.since
			}
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
	e.now = clusterState{name: name, detail: detail}
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
	if now.name == suspended {
		e.since = time.Now().UTC()
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

// spaceEvery is how often the space of etcd is looked at.
const spaceEvery = 5 * time.Second

// watchSpace logs when the space of etcd gets scarce, or ends, until ctx ends.
func (e *election) watchSpace(ctx context.Context) error {
	tick := time.NewTicker(spaceEvery)
	defer tick.Stop()
	for {
		e.mu.Lock()
		c, before := e.cluster, e.space
		e.mu.Unlock()
		if c != nil {
			if now, err := c.Space(ctx); err == nil {
				e.mu.Lock()
				e.space = now
				e.mu.Unlock()
				e.logSpace(before, now)
			}
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

// spaceNow returns the space of etcd as it was a moment ago.
func (s *server) spaceNow() etcd.Space {
	if s.election == nil {
		return etcd.Space{}
	}
	s.election.mu.Lock()
	defer s.election.mu.Unlock()
	return s.election.space
}

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
	for said := ""; ; {
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
		if err.Error() != said {
			said = err.Error()
			e.server.log.Warn("etcd is tried again each second", "err", err)
		}
		e.enter(standby, etcd.Reason(err))
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
