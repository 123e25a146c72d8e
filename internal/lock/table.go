package lock

import (
	"context"
	"errors"
	"log/slog"
	"sync"
)

// Options are the parts of a table. Log, Clock and Rules are needed.
type Options struct {
	Log    Log
	Disk   Disk // nil: any name is free on the disk, and locks have no directories
	Clock  Clock
	Rules  *Rules
	Logger *slog.Logger // nil: silent
	// Observe gets each record of the kinds Granted, Ended, Changed and Published, in order; nil: no observer. It is called with the
	// table's mutex held, so it must not block or use the table.
	Observe func(*Record)
	// Valid returns nil if this server may change locks now and report their holders, else a *SuspendedError. It is called often, and
	// must not block or use the table. nil: always.
	Valid func() error
}

// Table decides and records which client holds which lock. One mutex guards its [State] and the order of the log. The table waits for
// the disk and the log without that mutex. It is for use by many goroutines.
//
// Changes of one name are in one order, which the log fixes before any client gets a reply. A lock with others below it, its
// members, never ends before them, except by a program on the host that removes its directory. A hold ends by its token only.
//
// Ends by time happen in [Table.Expire], which package reaper calls. Until then a hold whose time is over stands. A restart forgets
// lock_delay and queues.
//
// While [Options.Valid] returns an error the table changes nothing, and nothing that locks protect is changed. Sessions and queues
// stay.
type Table struct {
	log     Log
	disk    Disk
	clock   Clock
	logger  *slog.Logger
	observe func(*Record)
	valid   func() error
	start   uint32
	changed chan struct{} // holds at most one message: NextExpiry returned too late a time
	retry   chan struct{} // holds at most one message: the field stuck is no longer empty

	reload sync.Mutex // held by one SetRules at a time

	mu       sync.Mutex // guards everything below
	st       *State
	out      outcome // the decision under way
	handing  outcome // that of a hand-over
	busy     map[Name]chan struct{}
	stuck    map[Name]struct{} // names whose queues could not be served: the server was suspended, or the log had no room
	awaited  Time              // the time that NextExpiry returned last
	sessions uint64            // the number of the last one
	appended Position          // the end of the last record in the log
}

// NewTable loads the holds of the log, compares them with their directories, and ends holds whose time is over. Ages go on. Every connection counts
// as ended now: the grace of locks with on_disconnect = release begins.
func NewTable(ctx context.Context, o Options) (*Table, error) {
	if o.Log == nil || o.Clock == nil || o.Rules == nil {
		return nil, errors.New("a lock table needs a log, a clock and rules")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Valid == nil {
		o.Valid = func() error { return nil }
	}
	if o.Observe == nil {
		o.Observe = func(*Record) {}
	}
	t := &Table{
		log: o.Log, disk: o.Disk, clock: o.Clock, logger: o.Logger, observe: o.Observe, valid: o.Valid,
		changed: make(chan struct{}, 1), retry: make(chan struct{}, 1),
		st:      newState(o.Rules, o.Disk != nil),
		busy:    make(map[Name]chan struct{}),
		stuck:   make(map[Name]struct{}),
		awaited: never,
	}
	loaded, err := o.Log.Load(ctx)
	if err != nil {
		return nil, err
	}
	t.start, t.st.last = loaded.Start, loaded.Last
	now := o.Clock.Exact()
	if loaded.Last > 0 { // there may be jobs that looked before the start
		t.st.floor.until = later(now.Boot, rememberJob)
	}
	for _, h := range loaded.Holds {
		if rule := o.Rules.find(h.Name); rule != nil {
			h.Rule = &rule.Rule
		}
		t.st.apply(&Record{Kind: Granted, Hold: h, At: now})
	}
	t.st.touched = t.st.touched[:0]
	if err := t.restore(ctx, loaded.Holds); err != nil {
		return nil, err
	}
	t.Expire(ctx)
	return t, nil
}

// restore compares the holds with their directories.
func (t *Table) restore(ctx context.Context, holds []Hold) error {
	if t.disk == nil {
		return nil
	}
	for _, h := range holds {
		if h.Automatic { // it never has one
			continue
		}
		id, gone, err := t.disk.Restore(ctx, h)
		if err != nil {
			return err
		}
		switch {
		case gone:
			_, err = t.decide(ctx, func(now Instant, out *outcome) { t.st.hostGone(h.Name, h.Token, now, out) })
		case id != h.Directory:
			h.Directory = id
			_, err = t.decide(ctx, func(now Instant, out *outcome) {
				if is := t.st.nodes[h.Name].byToken(h.Token); is != nil {
					h.Rule = is.Rule
				}
				out.records = append(out.records, Record{Kind: Changed, Cause: CauseDirectory, Hold: h, By: h.Owner, At: now})
			})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// result is an outcome that was applied.
type result struct {
	granted Hold
	adopted Token
	task    *claim
	place   *place
	end     Position // of its last record in the log
}

// change makes a decision while the server may change locks, see decide.
func (t *Table) change(ctx context.Context, f func(now Instant, out *outcome)) (result, error) {
	if err := t.valid(); err != nil {
		return result{}, err
	}
	return t.decide(ctx, f)
}

// refused returns the error of a decision when the log has everything that the decision saw. A reply must not depend on a record
// that a crash, or another server that takes over, undoes. If this server may not report holders any more, the error is that.
func (t *Table) refused(ctx context.Context, seen Position, err error) error {
	if suspended := t.valid(); suspended != nil {
		return suspended
	}
	if werr := t.log.Wait(ctx, seen, false); werr != nil {
		return werr
	}
	return err
}

// decide makes a decision, and in the same step applies its records and appends them to the log. If a change of the name is under
// way, it waits for the end of that and decides again. If the log has no room for a grant, it waits for room and decides again. The
// error is that of the decision, of ctx, or of the log. It does not wait until the records are written.
func (t *Table) decide(ctx context.Context, f func(now Instant, out *outcome)) (result, error) {
	for {
		t.mu.Lock()
		t.out.reset()
		out := &t.out
		now := t.clock.Now()
		f(now, out)
		if out.busy != "" {
			over := t.overLocked(out.busy)
			t.mu.Unlock()
			select {
			case <-over:
			case <-ctx.Done():
				return result{}, ctx.Err()
			}
			if err := t.valid(); err != nil {
				return result{}, err
			}
			continue
		}
		if token := t.nextLocked(); out.grants() && !t.log.Room(token) {
			t.mu.Unlock()
			if err := t.log.MakeRoom(ctx, token); err != nil {
				return result{}, err
			}
			continue
		}
		r, err := result{adopted: out.adopted, task: out.task, place: out.place}, out.err
		if out.granted != nil {
			r.granted = *out.granted
		}
		r.end = t.commitLocked(out)
		t.settleLocked(now)
		seen := t.appended
		t.mu.Unlock()
		if err != nil {
			err = t.refused(ctx, seen, err)
		}
		return r, err
	}
}

// do makes a volatile change that needs no decision.
func (t *Table) do(change func(st *State, now Instant)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	t.st.apply(&Record{change: func(st *State) { change(st, now) }})
	t.hurryLocked()
	t.settleLocked(now)
}

// nextLocked returns the largest token that the next grant may get.
func (t *Table) nextLocked() Token { return t.st.last + Token(t.st.makes) + 1 }

// overLocked returns a channel that is closed when something about the name has changed.
func (t *Table) overLocked(n Name) <-chan struct{} {
	over := t.busy[n]
	if over == nil {
		over = make(chan struct{})
		t.busy[n] = over
	}
	return over
}

// commitLocked applies the records of an outcome, and appends those for the log.
func (t *Table) commitLocked(out *outcome) (end Position) {
	for i := range out.records {
		r := &out.records[i]
		t.st.apply(r)
		if r.Kind != 0 {
			end = t.log.Append(out.records[i : i+1])
			t.appended = end
			t.observe(r)
		}
		if p := r.place; p != nil {
			if p.over {
				p.end = end
			}
			p.wake()
		}
	}
	t.hurryLocked()
	return end
}

// settleLocked gives the names that may have come free to the sessions in their queues, the name first that came free first, and wakes the
// decisions that wait for these names.
func (t *Table) settleLocked(now Instant) {
	for i := 0; i < len(t.st.touched); i++ { // a hand-over may touch more
		n := t.st.touched[i]
		if over := t.busy[n.name]; over != nil {
			close(over)
			delete(t.busy, n.name)
		}
		for len(n.queue) > 0 {
			if t.valid() != nil || !t.log.Room(t.nextLocked()) {
				t.stuckLocked(n.name)
				break
			}
			t.handing.reset()
			more := t.st.handOver(n, now, &t.handing)
			t.commitLocked(&t.handing)
			if !more {
				break
			}
		}
	}
	clear(t.st.touched)
	t.st.touched = t.st.touched[:0]
}

// stuckLocked has Run serve the queue of the name, as soon as the server may change locks and the log has room.
func (t *Table) stuckLocked(n Name) {
	if len(t.stuck) == 0 {
		select {
		case t.retry <- struct{}{}:
		default:
		}
	}
	t.stuck[n] = struct{}{}
}

// hurryLocked wakes the caller of NextExpiry if that returned too late a time.
func (t *Table) hurryLocked() {
	if due := t.st.agenda.next(); due < t.awaited {
		t.awaited = due
		select {
		case t.changed <- struct{}{}:
		default:
		}
	}
}

// complete makes or removes the directory of a claim, and then decides the result. It does both even if ctx ends, and decides even if
// the disk panics.
func (t *Table) complete(ctx context.Context, c *claim) (r result, err error) {
	ctx = context.WithoutCancel(ctx)
	err = errors.New("the disk panicked")
	var id DirectoryID
	var note string
	defer func() {
		r, err = t.decide(ctx, func(now Instant, out *outcome) {
			if c.makes || c.adds {
				t.st.made(c, id, err, now, out)
			} else {
				t.st.removed(c, note, err, now, out)
			}
		})
	}()
	switch {
	case c.makes:
		id, err = t.disk.Make(ctx, c.record.Hold.Name)
	case c.adds:
		id, err = t.disk.Create(ctx, c.record.Hold.Name)
	default:
		note, err = t.disk.Remove(ctx, c.record.Hold, c.record.Cause)
	}
	return r, err
}

// written waits until the grant is logged, durably if the log was opened so. After an error the hold ends as soon as it can.
func (t *Table) written(ctx context.Context, r result) error {
	err := t.log.Wait(ctx, r.end, true)
	if err == nil {
		return nil
	}
	t.decide(context.WithoutCancel(ctx), func(_ Instant, out *outcome) { t.st.undo(r.granted, out) })
	return err
}

// Valid is Options.Valid. Call it before a lock is reported to a client that relies on it, and right before a change of a
// protected file that begins slowly.
func (t *Table) Valid() error { return t.valid() }

// Rules returns the rules in force.
func (t *Table) Rules() *Rules {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.st.rules
}
