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

// election is the state of one of several servers: it stands by until its turn, takes over, and serves. A server has
// one turn: at its end the process ends, and the service manager starts it again.
type election struct {
	server  *server
	options etcd.Options
	reach   reachCluster

	context context.Context // of standing by and taking over
	cancel  context.CancelFunc
	over    chan struct{} // closed at their end

	mu        sync.Mutex
	cluster   cluster // nil before etcd answers
	now       clusterState
	term      clusterLog   // nil before this server's turn
	published clusterState // the last published state
	since     time.Time    // the time of the suspension, while published is suspended
	space     etcd.Space   // of etcd, a few seconds ago
}

func newElection(s *server, o etcd.Options, reach reachCluster) *election {
	e := &election{server: s, options: o, reach: reach, over: make(chan struct{}), now: clusterState{name: standby}}
	e.context, e.cancel = context.WithCancel(s.context)
	return e
}

// clusterState is the state of a server of several. A single server has the zero value.
type clusterState struct {
	name   string
	detail string    // for people
	since  time.Time // of suspended; zero if it is not published yet
}

// The names of states.
const (
	standby    = "standby"
	takingOver = "taking over"
	active     = "active"
	suspended  = "suspended" // the server cannot prove that it is the active one, and changes nothing
	steppedOut = "deposed"   // another server takes over
)

var clusterStates = []string{standby, takingOver, active, suspended, steppedOut}

// String returns the name, the time and the detail, which is omitted for active.
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

// clusterState returns the state of the server.
func (s *server) clusterState() clusterState {
	if s.election == nil {
		return clusterState{}
	}
	return s.election.state()
}

// state returns the state without a request to etcd.
func (e *election) state() clusterState {
	e.mu.Lock()
	defer e.mu.Unlock()
	state := e.now
	switch {
	case state.name == standby && e.cluster != nil:
		state.detail = "no server is active"
		if trouble := e.cluster.Trouble(); trouble != "" {
			state.detail = trouble
		} else if leader, ok := e.cluster.Leader(); ok {
			state.detail = leader.String() + " is active"
		}
	case state.name == active:
		if err := e.term.Valid(); err != nil {
			state = clusterState{name: suspended, detail: reasonOf(err)}
			if e.published.name == suspended {
				state.since = e.since
			}
		}
	}
	return state
}

// reasonOf returns the reason of a suspension.
func reasonOf(err error) string {
	var s *lock.SuspendedError
	if errors.As(err, &s) {
		return s.Reason
	}
	return err.Error()
}

// enter changes the state.
func (e *election) enter(name, detail string) {
	e.mu.Lock()
	e.now = clusterState{name: name, detail: detail}
	e.mu.Unlock()
	e.publish()
}

// publish publishes the state if it has changed.
func (e *election) publish() {
	now := e.state()
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case now.name == standby && now.detail == "": // etcd has not answered yet
		return
	case now.name == e.published.name && (now.detail == e.published.detail || now.name == suspended):
		return
	}
	what := event.Event{Kind: event.Cluster, Cause: now.name, Reason: now.detail}
	if e.published.name == suspended && now.name == active {
		what.Cause, what.Reason = "resumed", ""
	}
	if now.name == suspended {
		e.since = time.Now().UTC()
	}
	e.published = now
	e.server.watched.bus.Publish(what)
	e.server.tellManager("STATUS=" + now.String())
}

// lookEvery is the time between two checks of the state.
const lookEvery = 200 * time.Millisecond

// watch publishes changes of the state until ctx ends.
func (e *election) watch(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			e.publish()
		case <-ctx.Done():
			return nil
		}
	}
}

// spaceEvery is the time between two checks of the space of etcd.
const spaceEvery = 5 * time.Second

// watchSpace logs when etcd's database is nearly full or full, until ctx ends.
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

// spaceNow returns the space of etcd at the last check.
func (s *server) spaceNow() etcd.Space {
	if s.election == nil {
		return etcd.Space{}
	}
	s.election.mu.Lock()
	defer s.election.mu.Unlock()
	return s.election.space
}

// reachEvery is the time between two tries to reach etcd.
const reachEvery = time.Second

// run stands by, and takes over at this server's turn. It returns nil then, and when the server ends.
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

// open waits until it reaches etcd, which may start later after a loss of power of all machines.
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
			e.server.log.Warn("etcd does not answer; the server tries again each second", "err", err)
		}
		e.enter(standby, etcd.Reason(err))
		select {
		case <-time.After(reachEvery):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// takeOver begins to serve. If it fails, another server takes over.
func (e *election) takeOver(ctx context.Context, t clusterLog) (err error) {
	s, began := e.server, time.Now()
	s.mu.Lock()
	e.mu.Lock()
	e.term = t
	e.mu.Unlock()
	e.enter(takingOver, fmt.Sprintf("term %d", t.Generation())) // a reload is refused from now on
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

// end ends the standby or the take-over, and waits for it.
func (e *election) end() {
	e.cancel()
	<-e.over
}

// close closes the connection to etcd. The service must be closed before.
func (e *election) close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cluster == nil {
		return nil
	}
	return e.cluster.Close()
}
