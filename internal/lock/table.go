package lock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Options says what a table is made of. Store, Clock and Rules are needed.
type Options struct {
	Store Store
	Clock Clock
	Rules *Rules
	Log   *slog.Logger // nil: nothing is logged
	// Observe is told of each grant and of each end of a hold, in their order; nil: nobody is. It is called with the table's
	// mutex held, so it must not block or use the table.
	Observe    func(Observation)
	Generation uint32 // number of this start of the server, larger than all before
	// Valid says whether this server may change locks now, and say who holds them: nil, or a *SuspendedError. It is asked often, and
	// must not block or use the table. nil: it always may.
	Valid func() error
}

// Table is the one owner of lock state in a process: who holds what, who may have it next, and until when. It
// is for use by many goroutines.
//
// Changes of one name come one after the other; those of different names run in
// parallel. A lock with others below it, its members, never ends before them, except by a host that removes its
// directory; and nothing is granted below a lock that is ending. A hold ends by its token only.
//
// Ends by time happen in [Table.Expire], which somebody has to call (package reaper does);
// until then a hold whose time is over stands. After a restart lock_delay and queues are forgotten; a limit
// is that of one process.
//
// While [Options.Valid] returns an error the table changes nothing, and nothing that locks protect is changed. Sessions and queues
// stay: one that waits and has its turn is asked again each second, as is what is to end by time. A grant, or a renewal, that the
// store made in the very moment is told as ErrUncertain: it stands.
//
// The lock order: first reloading, then mu, and under mu no other lock. The store is never called with mu held. The wake
// functions of those that wait are, and so is Observe, so they must not block or use the table. A function whose name ends in Locked is
// called with mu held and keeps it: it never unlocks, waits, or calls one that does. A test over the source checks that.
type Table struct {
	store   Store
	clock   Clock
	log     *slog.Logger
	observe func(Observation)
	valid   func() error
	changed chan struct{} // holds at most one message

	reloading sync.Mutex // one reload at a time

	mu         sync.Mutex // guards everything below, the nodes, and the sessions but for their atomic fields
	rules      *Rules
	nodes      map[Name]*node
	names      agenda        // when names are to be looked at: ends of holds and of delays
	wanting    agenda        // when clients that wait or poll are
	awaited    time.Duration // what NextExpiry said last
	excluded   map[Name]*exclusion
	sessions   map[SessionID]*Session // those that have not ended, or have holds
	accounts   map[string]*account    // those that have holds
	pools      map[poolKey]*pool
	polls      pollers
	generation SessionID
	lastID     SessionID
	tickets    uint64 // the last one that was given for a place in a queue
	count      Count
}

// exclusion is a name at or below which nothing is granted for now.
type exclusion struct {
	users int
	over  chan struct{}
}

// NewTable takes over what the store holds. Ages go on: by boot time within one boot, by wall
// time across two, where a wall clock that went backwards gives a full new age. The stop of
// the server counts as the end of every connection: holds with on_disconnect = release end, or
// wait for their grace from now on. Limits follow the rules as in [Table.SetRules], but
// that a restart never makes an age longer. What is over is ended before it returns.
func NewTable(ctx context.Context, o Options) (*Table, error) {
	if o.Store == nil || o.Clock == nil || o.Rules == nil {
		return nil, errors.New("a lock table needs a store, a clock and rules")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Valid == nil {
		o.Valid = func() error { return nil }
	}
	t := &Table{
		store: o.Store, clock: o.Clock, log: o.Log, observe: o.Observe, valid: o.Valid, rules: o.Rules,
		changed:  make(chan struct{}, 1),
		nodes:    map[Name]*node{"/": {name: "/"}},
		awaited:  neverEnds,
		excluded: make(map[Name]*exclusion),
		sessions: make(map[SessionID]*Session),
		accounts: make(map[string]*account),
		pools:    make(map[poolKey]*pool),
		polls:    newPollers(),

		generation: SessionID(o.Generation) << 32,
	}
	disconnected, err := t.load(ctx)
	if err != nil {
		return nil, err
	}
	t.Expire(ctx)
	if err := t.persist(ctx, disconnected, CauseDisconnect); err != nil {
		t.log.LogAttrs(ctx, slog.LevelWarn, "ends of connections not recorded", slog.Any("err", err))
	}
	return t, nil
}

// load reads the store, and returns the names whose holds wait for their grace from now on.
func (t *Table) load(ctx context.Context) (disconnected []Name, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	for record, err := range t.store.All(ctx) {
		if err != nil {
			return nil, fmt.Errorf("reading the locks: %w", err)
		}
		e := t.growLocked(record.Name)
		e.revision, e.newest = record.Revision, record.Revision
		for _, hold := range record.Holds {
			h := t.addLocked(e, t.arrivedLocked(record.Name, hold, now))
			if h.waitsForGrace() && hold.Ended == (Instant{}) && h.Rule.Grace > 0 {
				disconnected = append(disconnected, record.Name)
			}
		}
		t.settleLocked(e)
	}
	return disconnected, nil
}

// arrivedLocked makes a hold that the store reports one of this boot and these rules.
func (t *Table) arrivedLocked(n Name, h Hold, now Instant) Hold {
	if h.Renewed == (Instant{}) {
		h.Renewed = h.Acquired
	}
	h.Acquired, h.Renewed = rebase(h.Acquired, now), rebase(h.Renewed, now)
	if h.Ended != (Instant{}) {
		h.Ended = rebase(h.Ended, now)
	}
	rule, ok := t.rules.For(n)
	switch {
	case !ok:
	case h.Rule.Match == "":
		h.Rule = rule
	default:
		rule.MaxAge = shorter(rule.MaxAge, h.Rule.MaxAge)
		if h.Rule.OnDisconnect == ReleaseOnDisconnect {
			rule = releasedAfter(rule, h.Rule.Grace)
		}
		h.Rule = withLimits(h.Rule, rule)
	}
	if h.Rule.Release == "" {
		h.Rule.Release = ReleaseAddress
	}
	return h
}

// rebase gives a moment of another boot, or of an unknown one, the boot time that
// lies as far back as the wall clock says; not at all if that went backwards.
func rebase(i, now Instant) Instant {
	age := now.Boot - i.Boot
	if i.BootID != now.BootID || i.BootID == "" {
		age = now.Wall.Sub(i.Wall)
	}
	i.Boot, i.BootID = now.Boot-max(age, 0), now.BootID
	return i
}

// Run takes over what others change in the store, until ctx ends; then it returns nil. The store logs these changes. One
// call at a time.
func (t *Table) Run(ctx context.Context) error {
	for event := range t.store.Watch(ctx) {
		t.takeOver(event)
	}
	if ctx.Err() == nil {
		return errors.New("the store stopped to tell what others change")
	}
	return nil
}

// look has the store look at a held lock, and reports whether something changed.
func (t *Table) look(ctx context.Context, n Name) bool {
	looker, ok := t.store.(Looker)
	if !ok {
		return false
	}
	event, changed := looker.Look(ctx, n)
	if changed {
		t.takeOver(event)
	}
	return changed
}

func (t *Table) takeOver(event Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.nodes[event.Record.Name]
	switch {
	case e == nil && len(event.Record.Holds) == 0:
		return
	case e == nil:
		e = t.growLocked(event.Record.Name)
	case e.doing != idle: // it may be part of what that change runs into
		if e.outside == nil || e.outside.Record.Revision < event.Record.Revision {
			e.outside = &event
		}
		return
	}
	t.applyLocked(e, event)
	t.settleLocked(e)
}

// applyLocked takes an event over, if the table does not know it yet.
func (t *Table) applyLocked(e *node, event Event) {
	if event.Record.Revision > e.newest || e.unsettled != nil && event.Record.Revision == e.newest {
		t.putLocked(e, t.reportedLocked(event.Record), reason{cause: event.Cause})
	}
}

func (t *Table) reportedLocked(r Record) Record {
	now := t.clock.Now()
	holds := make([]Hold, len(r.Holds))
	for i, h := range r.Holds {
		holds[i] = t.arrivedLocked(r.Name, h, now)
	}
	r.Holds = holds
	return r
}

// Valid is Options.Valid. Who shows a lock to a client that goes by that asks it after the look, and who makes a change of a
// protected file that begins slowly asks it again right before the change itself.
func (t *Table) Valid() error { return t.valid() }

// Rules returns the rules in force.
func (t *Table) Rules() *Rules {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rules
}
