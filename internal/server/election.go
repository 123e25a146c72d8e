package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ftplockd/ftplockd/internal/event"
	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/etcd"
)

// election is the part of one of several servers that stands by and takes over. A server takes over once: at the end of its
// term the process ends, and the service manager starts it again.
type election struct {
	server  *server
	cluster cluster

	context context.Context // of standing by and taking over
	cancel  context.CancelFunc
	done    chan struct{} // closed at their end

	readiness *readiness    // of a standby
	limit     time.Duration // of a take-over without progress
	progress  atomic.Int64  // the number of steps of the take-over so far

	files      *readiness    // of the active server
	filesLimit time.Duration // see handOverAfter

	mu        sync.Mutex
	now       clusterState
	unready   error        // why this server could not serve, at the last check
	term      clusterLog   // nil before this server's turn
	published clusterState // the last published state
	space     etcd.Space   // of etcd at the last check
	overview  etcd.Overview
	decided   bool // see endTakeOver

	shut bool // setGates has shut the gates
}

func newElection(s *server) *election {
	e := &election{server: s, done: make(chan struct{}), now: clusterState{name: standby}, limit: 2 * s.config.Etcd.TTL.Duration, filesLimit: handOverAfter(s.config.Etcd.TTL.Duration)}
	e.readiness, e.files = &readiness{check: s.checkServable}, &readiness{check: s.checkFiles}
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
	notReady   = "not ready" // the server could not serve, so it does not stand by
	takingOver = "taking over"
	active     = "active"
	suspended  = "suspended" // the server cannot prove that it is the active one, and changes nothing
	deposed    = "deposed"   // another server takes over: the term has ended, or this server hands over
)

var clusterStates = []string{standby, notReady, takingOver, active, suspended, deposed}

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

// state returns the state, without a request to etcd. A single server has no election, which is nil.
func (e *election) state() clusterState {
	if e == nil {
		return clusterState{}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stateLocked()
}

func (e *election) stateLocked() clusterState {
	state := e.now
	switch {
	case state.name == standby && e.unready != nil:
		state = clusterState{name: notReady, detail: e.unready.Error()}
	case state.name == standby:
		state.detail = e.cluster.StandbyState()
	case state.name == active:
		if err := e.term.Valid(); err != nil {
			state = clusterState{name: suspended, detail: err.Error()}
			if reason := new(lock.SuspendedError); errors.As(err, &reason) {
				state.detail = reason.Reason
			}
			if e.published.name == suspended {
				state.since = e.published.since
			}
		}
	}
	return state
}

// setState changes and publishes the state. deposed is the last one: nothing follows it.
func (e *election) setState(name, detail string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.now.name != deposed {
		e.now = clusterState{name: name, detail: detail}
		e.publishLocked()
	}
}

// publishLocked publishes the state if it has changed.
func (e *election) publishLocked() {
	now := e.stateLocked()
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
	if e.published = now; now.name == suspended {
		e.published.since = time.Now().UTC()
	}
	e.server.sinks.bus.Publish(what)
}

// checkStateEvery is the time between two checks of the state.
const checkStateEvery = 200 * time.Millisecond

// watch publishes changes of the state until ctx ends, and notifies the service manager of them.
func (e *election) watch(ctx context.Context) error {
	tick := time.NewTicker(checkStateEvery)
	defer tick.Stop()
	var notified clusterState
	for {
		select {
		case <-tick.C:
			if err := e.setGates(ctx); err != nil {
				return err
			}
			e.mu.Lock()
			e.publishLocked()
			now := e.published
			e.mu.Unlock()
			if now != notified {
				notified = now
				_ = e.server.notifyManager("STATUS=" + now.String())
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// setGates shuts the gates of a server whose lease is over, because another server may be active: clients that get no connection try the next address.
// Sessions stay. It opens the gates when the server is the active one after all. If it cannot, this server hands over.
func (e *election) setGates(ctx context.Context) error {
	v := e.server.service.Load()
	if v == nil || v.term.LeaseOver() == e.shut {
		return nil
	}
	if e.shut = !e.shut; e.shut {
		e.server.log.Warn("the lease is over: new connections are refused, because another server may be active")
		for _, g := range v.gates {
			if err := g.shut(); err != nil {
				e.server.log.Warn("could not close an address", "address", g.Addr().String(), "err", err)
			}
		}
		return nil
	}
	for _, g := range v.gates {
		if err := g.reopen(ctx); err != nil {
			return fmt.Errorf("%w: %w", etcd.ErrHandOver, err)
		}
	}
	e.server.log.Info("the lease is renewed: new connections are accepted")
	return nil
}
