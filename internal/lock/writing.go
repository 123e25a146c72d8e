package lock

import "context"

// MayWrite reports by which holds the session may change the path now. If the path lies in a lock that is held, the session must
// act for the hold of the innermost one, and hold it alone. If rules protect the path, one of the locks that do must be held
// exclusively, the session must act for that hold as its [WritePolicy] demands, and no other job may hold another of them. The error is
// a *ProtectedError, ErrEnded, or that of [Rules.Guards].
//
// The result is true at one moment only. Make the change itself in [Session.Write].
func (s *Session) MayWrite(path Name) (Title, error) {
	t := s.table
	q, err := t.Rules().question(path)
	if err != nil {
		return Title{}, err
	}
	t.mu.Lock()
	now := t.clock.Now()
	title, err := t.st.title(s.s, Write{Path: path}, q, now)
	err = t.st.refreshed(err, now)
	seen := t.appended
	t.mu.Unlock()
	if err != nil {
		err = t.refused(context.Background(), seen, err)
	}
	return title, err
}

// Concerned reports whether locks may refuse a change of the path: rules protect paths, or it lies in a lock or in
// something with the name of one. Otherwise MayWrite and Write are not needed.
func (s *Session) Concerned(path Name) bool {
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.st.rules.Protects() {
		return true
	}
	if path == "/" {
		return false
	}
	for n := path.Parent(); n != "/"; n = n.Parent() {
		if t.st.held(n) || t.st.rules.find(n) != nil {
			return true
		}
	}
	return false
}

// Write runs fn while the session may make all the changes, see MayWrite: the end of the holds of a title
// waits for fn, and so does every grant of another lock that protects one of the paths or that a path lies in. So the change
// and the check are one step. A hold whose time is over is none, also before Expire has ended it. fn gets the titles, in the order
// of the writes. It must be quick, and must not wait for the table.
//
// The errors are those of MayWrite, of ctx, that of [Options.Valid], and what fn returns. Valid is called right before fn, unless no lock
// concerns any of the paths.
func (s *Session) Write(ctx context.Context, writes []Write, fn func([]Title) error) error {
	t := s.table
	for {
		rules := t.Rules()
		questions := make([]question, len(writes))
		for i, w := range writes {
			var err error
			if questions[i], err = rules.question(w.Path); err != nil {
				return err
			}
		}
		var titles []Title
		var keeps kept
		stale := false
		_, err := t.decide(ctx, func(now Instant, out *outcome) {
			if stale = t.st.rules != rules; stale {
				return
			}
			titles, keeps = t.st.titles(s.s, writes, questions, now, out)
		})
		switch {
		case err != nil:
			return err
		case stale:
			continue
		case keeps.empty():
			return fn(titles)
		}
		return t.keeping(keeps, func() error { return fn(titles) })
	}
}

// keeping runs fn, and then ends the write.
func (t *Table) keeping(k kept, fn func() error) error {
	defer t.do(func(st *State, _ Instant) { st.applyKept(k, -1) })
	if err := t.valid(); err != nil {
		return err
	}
	return fn()
}

// Exclude runs fn while nothing is held at or below the names and nothing can be granted there:
// for the removal and renaming of directories that are no locks. It waits for changes under way.
// If something is held it returns a *HeldError for that, and fn does not run;
// else what fn returns. Grants wait for fn, so it must be quick, and must not acquire there.
func (t *Table) Exclude(ctx context.Context, names []Name, fn func() error) error {
	keeps := kept{bars: names}
	_, err := t.decide(ctx, func(now Instant, out *outcome) {
		for _, name := range names {
			n := t.st.nodes[name].takenWithin()
			switch {
			case n == nil:
			case n.claim != nil:
				out.busy = n.name
				return
			default:
				held := n.heldError(now)
				held.Below = n.name != name
				out.refuse(held)
				return
			}
		}
		out.keep(keeps)
	})
	if err != nil {
		return err
	}
	return t.keeping(keeps, fn)
}

// Published appends a change of a protected file to the log, and waits until it is written. The hold that allowed it is given by its name, token and
// owner. After an error the file is published all the same.
func (t *Table) Published(ctx context.Context, hold Hold, by Owner, note string, file Publication) error {
	r, err := t.decide(ctx, func(now Instant, out *outcome) {
		out.records = append(out.records, Record{Kind: Published, Cause: CausePublish, Hold: hold, By: by, At: now, Note: note, File: &file})
	})
	if err != nil {
		return err
	}
	return t.log.Wait(ctx, r.end, false)
}
