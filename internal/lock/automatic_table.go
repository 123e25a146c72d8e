package lock

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
)

// Sign is a command that shows, when two sessions of a job send it for one path, that two programs run as one job.
type Sign uint8

// The signs.
const (
	NoSign Sign = iota
	Fetch       // RETR, before the first change
	Make        // MKD
	Store       // STOR
)

var signTexts = [...]string{Fetch: "fetched", Make: "made", Store: "stored"}

// Look notes that the session looks at a path, and has the first look of its job wait while another job holds the automatic lock of
// the path: then the Waiting is not nil, and the look goes on when that is over, with any result. See [Automatic]. Do not call it for
// a client that may only read.
func (s *Session) Look(ctx context.Context, path Name, sign Sign, wake func()) *Waiting {
	t := s.table
	name := t.Rules().Automatic(path)
	if name == "" {
		return nil
	}
	a := &acquisition{session: s.s, name: name, wake: wake, path: path, look: true, sign: sign}
	r, err := t.change(ctx, func(now Instant, out *outcome) { t.st.look(a, now, out) })
	if err != nil { // suspended, or a full disk: the look counts all the same
		a.only = true
		t.decide(ctx, func(now Instant, out *outcome) { t.st.look(a, now, out) })
	}
	if r.place != nil {
		return &Waiting{session: s, place: r.place}
	}
	return nil
}

// Change decides whether the session may change a path, if that has an automatic lock. The first change of a job acquires the lock. While
// another job holds it, the session waits for the time of its rule, and the Waiting is not nil. A *JobError refuses the change and every later one
// of the job under this lock. Other locks may refuse the change, too: MayWrite and Write check the hold.
func (s *Session) Change(ctx context.Context, path Name, sign Sign, wake func()) (*Waiting, error) {
	t := s.table
	name := t.Rules().Automatic(path)
	if name == "" {
		return nil, nil
	}
	a := &acquisition{session: s.s, name: name, wake: wake, path: path, sign: sign}
	r, err := t.change(ctx, func(now Instant, out *outcome) { t.st.change(a, now, out) })
	var refused *JobError
	switch {
	case r.place != nil:
		return &Waiting{session: s, place: r.place}, nil
	case err == nil && r.granted.Token != 0:
		t.mu.Lock()
		end := t.appended
		t.mu.Unlock()
		return nil, t.log.Wait(ctx, end, true)
	case err == nil || errors.As(err, &refused) || errors.Is(err, ErrEnded) || ctx.Err() != nil:
		return nil, err
	}
	// Suspended, or a full disk. One refusal alone would do harm.
	refused = &JobError{Lock: name, Cause: "other", Why: err}
	t.decide(ctx, func(now Instant, out *outcome) {
		rule := t.st.rules.automaticFor(name)
		refused.Report = rule == nil || rule.automatic.Report
		if !refused.Report {
			v := t.st.viewOf(s.s, name, rule)
			out.do(func(*State) { v.refuse(refused, s.s.owner, now) })
		}
	})
	if refused.Report {
		return nil, nil
	}
	return nil, refused
}

// Wrote is Work of a client that changed a file, or whose upload moved bytes: a sign of life for the automatic locks of its job, too.
func (s *Session) Wrote() {
	s.Work()
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.st.rules.automatic) == 0 && len(t.st.sites) == 0 || s.s.closed {
		return
	}
	now := t.clock.Now().Boot
	s.s.each(func(v *view) {
		if v.hold != nil {
			v.hold.idleFrom = now
		}
	})
}

// RefusedJob is a job that may not change the files of an automatic lock.
type RefusedJob struct {
	Lock  Name
	Owner Owner   // of the session that was refused first
	At    Instant // when
	Why   *JobError
}

// RefusedJobs returns the jobs that are refused, by lock.
func (t *Table) RefusedJobs() []RefusedJob {
	var all []RefusedJob
	t.mu.Lock()
	now := t.clock.Now().Boot
	if len(t.st.sites) == 0 {
		t.mu.Unlock()
		return nil
	}
	steps := 0
	t.st.eachView(func(v *view) {
		if v.isRefused(t.st, now) {
			all = append(all, RefusedJob{v.name, v.by, v.at, v.refused})
		}
		t.walkLocked(&steps)
	})
	t.mu.Unlock()
	slices.SortFunc(all, func(a, b RefusedJob) int {
		return cmp.Or(strings.Compare(string(a.Lock), string(b.Lock)), cmp.Compare(a.At.Boot, b.At.Boot))
	})
	return all
}

// isRefused reports whether the job is refused now. The session of a session's own job may have ended, and a new one belongs to it.
func (v *view) isRefused(st *State, now Time) bool {
	return v.refused != nil && (v.job.open > 0 && v.until == 0 || now <= max(v.until, later(v.job.ended, st.graceAt(v.name))))
}

// eachView visits the views of all jobs.
func (st *State) eachView(visit func(*view)) {
	for _, j := range st.jobs {
		for _, v := range j.views {
			visit(v)
		}
	}
}

// ClearJobs lets the refused jobs of a lock change files again, all or those of one account and address, and returns how many there
// were. The files that they looked at count as unchanged since then.
func (t *Table) ClearJobs(ctx context.Context, name Name, account, address string) int {
	cleared := 0
	t.decide(ctx, func(now Instant, out *outcome) {
		cleared = 0
		t.st.eachView(func(v *view) {
			if v.name == name && v.isRefused(t.st, now.Boot) && (account == "" || v.by.Account == account && (address == "" || v.by.Address == address)) {
				out.do(func(st *State) {
					v.restart()
					v.base, v.known = st.last, true
				})
				cleared++
			}
		})
	})
	return cleared
}
