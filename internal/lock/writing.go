package lock

import (
	"context"
	"log/slog"
)

// MayWrite returns the holds by which the session may change the path now. If the path lies in a held lock, the innermost one must be held
// exclusively, and the session must act for that hold. If rules protect the path, one of the protecting locks must be held exclusively, the
// session must act for that hold as its [WritePolicy] requires, and no other job may hold another of these locks. The errors are a
// *ProtectedError, ErrEnded, that of [Rules.Guards], and that of ctx if it ends before the refusal can be sent.
//
// The result may be out of date at once. Make the change in [Session.Write].
func (s *Session) MayWrite(ctx context.Context, path Name) (Permit, error) {
	return s.MayMake(ctx, Write{Path: path})
}

// MayMake is MayWrite for a write that another session's hold allows, see Write.Under.
func (s *Session) MayMake(ctx context.Context, w Write) (Permit, error) {
	t := s.table
	q, err := t.Rules().locksOfPath(w.Path)
	if err != nil {
		return Permit{}, err
	}
	t.mu.Lock()
	permit, err := t.st.permit(s.s, w, q, t.clock.Now())
	after := t.appended
	t.mu.Unlock()
	if err != nil {
		err = t.awaitRefusal(ctx, after, err)
	}
	return permit, err
}

// Write runs fn if the session may make all the changes, see MayWrite. Check and change are one step: the ends of the holds wait for fn,
// and so do grants of other locks that protect one of the paths or contain it. An expired hold does not count, even if Expire has not
// ended it yet. Write returns after the log has written the publications of fn, see [Table.Publish]; it does not hold the locks for that. fn gets
// the permits in the order of the writes, or nil if no rule protects any path, and no path lies in a held lock or below
// the name of a lock. It must be quick, and must not acquire or end locks.
//
// The errors are those of MayWrite, ctx, [Options.Valid] and fn. Valid is called right before fn, unless no lock concerns the paths.
func (s *Session) Write(ctx context.Context, writes []Write, fn func([]Permit) error) error {
	t := s.table
	for {
		asked, err := newWriteRequest(s.s, writes, t.Rules())
		if err != nil {
			return err
		}
		r, err := t.decide(ctx, func(now Instant, out *outcome) { t.st.permitAll(asked, now, out) })
		switch {
		case err != nil:
			return err
		case r.permit == nil:
			continue
		}
		permits, scope := r.permit.holds, r.permit.scope
		switch {
		case scope.empty() && !asked.rules.Protects():
			return fn(nil)
		case scope.empty():
			return fn(permits)
		}
		ran := false
		err = t.runPinned(scope, func() error { ran = true; return fn(permits) })
		if ran && scope.publications > 0 { // also after an error: fn may have made some of the changes
			t.awaitPublications(ctx)
		}
		return err
	}
}

// awaitPublications waits until the log has written everything that was appended. It logs an error only, because the files have changed.
func (t *Table) awaitPublications(ctx context.Context) {
	t.mu.Lock()
	after := t.appended
	t.mu.Unlock()
	if err := t.log.Wait(ctx, after, false); err != nil {
		t.logger.LogAttrs(ctx, slog.LevelError, "a publication is not in the history", slog.Any("err", err))
	}
}

// runPinned runs fn, and then ends the write.
func (t *Table) runPinned(k writeScope, fn func() error) error {
	defer t.endWrite(k)
	if err := t.checkValid(); err != nil {
		return err
	}
	return fn()
}

// endWrite ends a write.
func (t *Table) endWrite(k writeScope) {
	now := t.beginChange()
	defer t.endChange(now)
	t.st.applyScope(k, -1)
}

// Exclude runs fn while no lock is held at or below the names, and excludes grants there meanwhile. It serves to remove and rename directories
// that are no locks. It waits for changes under way. If a lock is held, see [Session.HeldWithin], it returns a *HeldError without a call of
// fn. fn must be quick, and must not acquire locks there.
func (s *Session) Exclude(ctx context.Context, names []Name, fn func() error) error {
	t := s.table
	scope := writeScope{excluded: names}
	_, err := t.decide(ctx, func(now Instant, out *outcome) { t.st.exclude(s.s, scope, now, out) })
	if err != nil {
		return err
	}
	return t.runPinned(scope, fn)
}

// Published appends a change of a protected file to the log, and waits for the write. hold needs the name, token and owner of the hold that
// allowed the change. The errors are those of the log; without room the record is not appended. In a call of [Session.Write] use
// [Table.Publish].
func (t *Table) Published(ctx context.Context, hold Hold, by Owner, note string, file Publication) error {
	r, err := t.decide(ctx, func(now Instant, out *outcome) { out.publish(CausePublish, hold, by, note, file, now) })
	if err != nil {
		return err
	}
	return t.log.Wait(ctx, r.end, false)
}

// Publish appends a change that the function of a [Session.Write] makes, once for each of its permits with a lock at most. It waits for
// nothing: Write waits for the record.
func (t *Table) Publish(hold Hold, by Owner, note string, file Publication) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out outcome
	now := t.clock.Now()
	out.publish(CausePublish, hold, by, note, file, now)
	t.commitLocked(&out)
	t.serveQueuesLocked(now)
}

// NoteAttempt appends to the history that a change of a file failed, by CauseProtect or CauseDiscard. name is a lock that protects the file. It
// waits for nothing, and without room in the log it appends nothing.
func (t *Table) NoteAttempt(cause Cause, name Name, by Owner, note string, file Publication) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out outcome
	out.publish(cause, Hold{Name: name, Owner: by}, by, note, file, t.clock.Now())
	t.commitLocked(&out)
}

// publish adds a record of the kind Published.
func (o *outcome) publish(why Cause, hold Hold, by Owner, note string, file Publication, now Instant) {
	o.records = append(o.records, Record{Kind: Published, Cause: why, Hold: hold, By: by, At: now, Note: note, File: &file})
}
