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
	// Observe is called with each record that has a kind, in order, while the table's mutex is held. It must not block or use the table.
	// nil: no observer.
	Observe func(*Record)
	// Valid returns nil if this server may change locks now and report their holders, else a *SuspendedError. It is called often, and
	// must not block or use the table. nil: always.
	Valid func() error
}

// Table decides which client holds which lock, and records that in a log. One mutex guards its [State] and the order of the log. The
// table waits for the disk and the log without that mutex. It is for use by many goroutines.
//
// The log fixes the order of changes before any client gets a reply. A lock with others below it, its members, never ends before them,
// unless a program on the host removes its directory. An end names the token of its hold.
//
// An expired hold stands until [Table.Expire], which package reaper calls. A restart forgets lock_delay and queues.
//
// While [Options.Valid] returns an error, the table starts no grant, release, expiry or change of a protected file. It finishes changes that
// have begun. Sessions and queues stay.
type Table struct {
	log        Log
	disk       Disk
	clock      Clock
	logger     *slog.Logger
	observe    func(*Record)
	checkValid func() error
	start      uint32
	changed    chan struct{} // has a message if something expires before the time that NextExpiry returned; size 1
	serveLater chan struct{} // has a message if the field unserved is no longer empty; size 1

	reload sync.Mutex // held by one SetRules at a time

	mu              sync.Mutex // guards everything below
	st              *State
	out             outcome // the decision under way
	handOverOutcome outcome // the hand-over under way
	busy            map[Name]chan struct{}
	unserved        map[Name]struct{} // names whose queues were not served during a suspension, or without room in the log, see node.unserved
	nextWake        Time              // the last result of NextExpiry
	sessions        uint64            // number of the last session
	appended        Position          // end of the last record in the log
}

// NewTable loads the holds of the log, compares them with their directories, and ends expired ones. Ages continue, and idle times begin again.
// Every session counts as ended now, so the grace of locks with on_disconnect = release begins.
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
		log: o.Log, disk: o.Disk, clock: o.Clock, logger: o.Logger, observe: o.Observe, checkValid: o.Valid,
		changed: make(chan struct{}, 1), serveLater: make(chan struct{}, 1),
		st:       newState(o.Rules, o.Disk != nil),
		busy:     make(map[Name]chan struct{}),
		unserved: make(map[Name]struct{}),
		nextWake: never,
	}
	loaded, err := o.Log.Load(ctx)
	if err != nil {
		return nil, err
	}
	t.start, t.st.last = loaded.Start, loaded.Last
	now := o.Clock.Exact()
	for _, h := range loaded.Holds {
		if rule := o.Rules.find(h.Name); rule != nil {
			h.Rule = &rule.holdRule
		}
		t.st.apply(&Record{Kind: Granted, Hold: h, At: now})
	}
	t.st.dirty, t.st.vacated = t.st.dirty[:0], nil // no session waits yet
	if err := t.checkDirectories(ctx, loaded.Holds); err != nil {
		return nil, err
	}
	t.Expire(ctx)
	return t, nil
}

// checkDirectories compares the directories of all locks with their holds. A hold whose directory cannot be read stands; hostdir.Disk.Watch
// compares it later.
func (t *Table) checkDirectories(ctx context.Context, holds []Hold) error {
	if t.disk == nil {
		return nil
	}
	for _, h := range holds {
		if h.Job || !t.st.isOldest(h) { // without a directory, or with that of the oldest hold of the name
			continue
		}
		if err := t.checkDirectory(ctx, h); err != nil {
			return err
		}
	}
	return nil
}

// checkDirectory compares the directory of the oldest hold of a name with the disk. The result counts for all holds of the name.
func (t *Table) checkDirectory(ctx context.Context, h Hold) error {
	id, gone, err := t.disk.Restore(ctx, h)
	switch {
	case err != nil:
		t.logger.Error("the directory of a lock cannot be read; the lock stays held", "lock", h.Name, "err", err)
		return ctx.Err()
	case gone:
		_, err = t.decide(ctx, func(now Instant, out *outcome) { t.st.hostGone(h.Name, h.Token, now, out) })
	default: // after a crash before the record is written, Restore knows the new directory by its mark
		_, err = t.decide(ctx, func(now Instant, out *outcome) { t.st.restoredDirectory(h.Name, id, now, out) })
	}
	return err
}

// decision reads the State, and fills an outcome. It calls one named method of the State or the outcome.
type decision func(now Instant, out *outcome)

// result is what the table returns of an outcome that it has applied.
type result struct {
	reply
	granted Hold
	end     Position // of the last record in the log
}

// decideIfValid is decide for a server that may change locks, see Options.Valid.
func (t *Table) decideIfValid(ctx context.Context, f decision) (result, error) {
	return t.decideWhile(ctx, t.checkValid, f)
}

// awaitRefusal returns the error of a decision after the log has written every record appended before it: a refusal must not depend on a
// record that a crash or a takeover undoes. If this server may no longer report holders, it returns the error of Options.Valid.
func (t *Table) awaitRefusal(ctx context.Context, after Position, err error) error {
	if suspended := t.checkValid(); suspended != nil {
		return suspended
	}
	if werr := t.log.Wait(ctx, after, false); werr != nil {
		return werr
	}
	return err
}

// decide makes a decision, applies its records and appends them to the log, all in one step. While a change of the name is under way,
// or the log has no room for records that end nothing, it waits and decides again. The errors are those of the decision, ctx
// and the log. It does not wait for the write of its own records; a refusal waits for the records that it depends on, see awaitRefusal.
func (t *Table) decide(ctx context.Context, f decision) (result, error) {
	return t.decideWhile(ctx, func() error { return nil }, f)
}

// decideWhile is decide while check returns nil. It calls check again after each wait.
func (t *Table) decideWhile(ctx context.Context, check func() error, f decision) (result, error) {
	for {
		if err := check(); err != nil {
			return result{}, err
		}
		t.mu.Lock()
		out, now := &t.out, t.clock.Now()
		token, room := t.checkLocked(f, now, out)
		if out.busy != "" {
			changed := t.nextChangeLocked(out.busy)
			t.mu.Unlock()
			select {
			case <-changed:
			case <-ctx.Done():
				return result{}, ctx.Err()
			}
			continue
		}
		if !room {
			t.mu.Unlock()
			if err := t.log.MakeRoom(ctx, token); err != nil {
				return result{}, err
			}
			continue
		}
		logged := out.err != nil && out.logged()
		r, err := t.takeLocked(out, now)
		after := t.appended
		t.mu.Unlock()
		if err == nil {
			return r, nil
		}
		err = t.awaitRefusal(ctx, after, err)
		if _, suspended := err.(*SuspendedError); suspended && logged {
			err = ErrUncertain // a *SuspendedError says that nothing was changed
		}
		return r, err
	}
}

// takeLocked applies an outcome that checkLocked has found ready, serves the queues, and returns the reply and the error of the decision.
func (t *Table) takeLocked(out *outcome, now Instant) (result, error) {
	r, err := result{reply: out.reply}, out.err
	if out.granted != nil {
		r.granted = *out.granted
	}
	t.commitLocked(out)
	r.end = t.appended // also without a record of its own: the grant of a confirmed hold may not be written yet
	t.serveQueuesLocked(now)
	return r, err
}

// checkLocked makes a decision and applies nothing. If the outcome is busy, the caller waits and decides again. If room is false, it calls
// MakeRoom with the token and decides again. [Session.View] depends on the same check.
func (t *Table) checkLocked(f decision, now Instant, out *outcome) (token Token, room bool) {
	out.reset()
	f(now, out)
	token = t.nextTokenLocked() + Token(max(out.expects-1, 0))
	return token, out.busy != "" || !out.needsRoom() || t.log.Room(token)
}

// beginChange takes the mutex for a change that needs no decision and is not logged, and returns the time. endChange must follow.
func (t *Table) beginChange() (now Instant) {
	t.mu.Lock()
	return t.clock.Now()
}

// endChange serves the queues that a change has concerned, and releases the mutex.
func (t *Table) endChange(now Instant) {
	defer t.mu.Unlock()
	t.wakeReaperLocked()
	t.serveQueuesLocked(now)
}

// nextTokenLocked returns the token of the next grant if the grants and other records under way come first: each has room for one token.
func (t *Table) nextTokenLocked() Token {
	return t.st.last + Token(t.st.pendingGrants) + Token(t.st.expected) + 1
}

// nextChangeLocked returns a channel that is closed at the next change of the name.
func (t *Table) nextChangeLocked(n Name) <-chan struct{} {
	changed := t.busy[n]
	if changed == nil {
		changed = make(chan struct{})
		t.busy[n] = changed
	}
	return changed
}

// commitLocked applies the records of an outcome, and appends those with a kind to the log. On a full disk only observers get a record that
// changes nothing: clients can cause any number of them, and the space is for the ends of holds.
func (t *Table) commitLocked(out *outcome) {
	for i := range out.records {
		r := &out.records[i]
		t.st.apply(r)
		if r.Kind != 0 {
			if r.isChange() || t.log.Room(t.nextTokenLocked()) {
				t.appended = t.log.Append(out.records[i : i+1])
			}
			t.observe(r)
		}
		if w := r.waiter; w != nil {
			if w.done {
				w.end = t.appended
			}
			w.wake()
		}
	}
	t.wakeReaperLocked()
}

// wakeReaperLocked wakes the caller of NextExpiry if something expires before the time that it returned.
func (t *Table) wakeReaperLocked() {
	if due := t.st.timers.next(); due < t.nextWake {
		t.nextWake = due
		select {
		case t.changed <- struct{}{}:
		default:
		}
	}
}

// diskResult is what the disk returned for a claim.
type diskResult struct {
	id   DirectoryID // of a directory that it made
	note string      // of an end
	err  error
}

// complete makes or removes the directory of a claim, and then decides the result. The end of ctx stops neither.
func (t *Table) complete(ctx context.Context, c *claim) (result, error) {
	ctx = context.WithoutCancel(ctx)
	return t.decideCompleted(ctx, c, t.workOn(ctx, c))
}

// decideCompleted decides the result of a claim.
func (t *Table) decideCompleted(ctx context.Context, c *claim, done diskResult) (result, error) {
	return t.decide(ctx, func(now Instant, out *outcome) { t.st.decideClaim(c, done, now, out) })
}

// workOn makes or removes the directory of a claim. If the disk panics, it decides the claim as failed, so that no name stays claimed.
func (t *Table) workOn(ctx context.Context, c *claim) (done diskResult) {
	returned := false
	defer func() {
		if !returned {
			_, _ = t.decideCompleted(ctx, c, diskResult{err: errDiskPanicked}) // the panic goes on
		}
	}()
	switch hold := c.record.Hold; {
	case c.kind == claimGrant && hold.Job:
		done.err = t.disk.Check(ctx, hold.Name)
	case c.kind == claimGrant:
		done.id, done.err = t.disk.Make(ctx, hold.Name)
	case c.kind == claimFiles:
		done.id, done.err = t.disk.Create(ctx, hold.Name)
	default:
		done.note, done.err = t.disk.Remove(ctx, hold, c.record.Cause)
	}
	returned = true
	return done
}

// awaitGrant waits until the log has written the grant, and synced it if it is durable. After an error the hold ends as soon as possible.
func (t *Table) awaitGrant(ctx context.Context, r result) error {
	err := t.log.Wait(ctx, r.end, true)
	if err == nil {
		return nil
	}
	h := r.granted
	_, _ = t.decide(context.WithoutCancel(ctx), func(_ Instant, out *outcome) { // an error: it has ended
		t.st.markUndelivered(h.Name, h.Token, h.Owner.Session, out)
	})
	return err
}

// Valid returns the result of Options.Valid. Call it before a report that a client relies on, and right before a change of a protected
// file if time has passed since its check.
func (t *Table) Valid() error { return t.checkValid() }

// Rules returns the rules in force.
func (t *Table) Rules() *Rules {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.st.rules
}
