package lock

// change is a change of what the log does not store. An outcome lists changes among its records. Each is a type, so that a search for its
// name or for a field of the state finds every place that makes the change.
type change interface{ applyTo(st *State) }

// claimed begins a change of a directory.
type claimed struct{ c *claim }

func (d claimed) applyTo(st *State) { st.applyClaimed(d.c) }

// unclaimed ends a change of a directory without effect.
type unclaimed struct{ c *claim }

func (d unclaimed) applyTo(st *State) { st.applyUnclaimed(d.c) }

// queued adds a session to a queue.
type queued struct{ w *waiter }

func (d queued) applyTo(st *State) { st.applyQueued(d.w) }

// unqueued ends the waiting of a session, with an error or nil.
type unqueued struct {
	w   *waiter
	why error
}

func (d unqueued) applyTo(st *State) { st.applyUnqueued(d.w, d.why) }

// placeKept keeps the place of a session whose wait has ended, until a time.
type placeKept struct {
	w     *waiter
	until Time
}

func (d placeKept) applyTo(st *State) { st.applyPlaceKept(d.w, d.until) }

// placeLost ends the place of a session that did not ask again in time.
type placeLost struct{ w *waiter }

func (d placeLost) applyTo(st *State) { st.applyPlaceLost(d.w) }

// writeBegun begins a write.
type writeBegun struct{ scope writeScope }

func (d writeBegun) applyTo(st *State) { st.applyScope(d.scope, +1) }

// acknowledged records whether the client received the grant of a hold.
type acknowledged struct {
	name      Name
	token     Token
	delivered bool
}

func (d acknowledged) applyTo(st *State) { st.applyAcknowledged(d.name, d.token, d.delivered) }

// timerSet sets a timer.
type timerSet struct {
	t  *timer
	at Time
}

func (d timerSet) applyTo(st *State) { st.timers.set(d.t, d.at) }

// nodeFreed ends a lock_delay, or the wait for a directory of the host.
type nodeFreed struct{ n *node }

func (d nodeFreed) applyTo(st *State) { st.applyFree(d.n) }

// nodeBlocked records that a directory of the host has the name.
type nodeBlocked struct {
	n *node
	h *host
}

func (d nodeBlocked) applyTo(st *State) {
	d.n.blocked = d.h
	d.n.queue[0].host = d.h.err
	st.timers.set(&d.n.timer, d.h.until)
}

// holdsContested records that a session tried to acquire a lock that is held, or left its queue.
type holdsContested struct {
	n *node
	s *sessionState
}

func (d holdsContested) applyTo(*State) { d.n.contest(d.s) }

// groupEndCached keeps the deadline of a group, see cachedDeadline.
type groupEndCached struct {
	h *liveHold
	cachedDeadline
}

func (d groupEndCached) applyTo(*State) { d.h.groupEnd = d.cachedDeadline }

// endPostponed sets the time of the next attempt to end a hold, after a failed one.
type endPostponed struct {
	h       *liveHold
	nextTry Time
}

func (d endPostponed) applyTo(st *State) {
	d.h.nextTry = d.nextTry
	d.h.failures++
	st.arm(d.h)
}
