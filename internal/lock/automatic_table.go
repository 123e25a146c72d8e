package lock

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
)

// Sign is a command that one program sends only once for a path: if two sessions of a job send it, two programs run as one job.
type Sign uint8

// The signs.
const (
	NoSign Sign = iota
	Fetch       // RETR, before the first change
	Make        // MKD
	Store       // STOR
)

var signTexts = [...]string{Fetch: "fetched", Make: "made", Store: "stored"}

// Look records a look of the session at a path. The first look of a job waits while another job holds the automatic lock of the path: then
// the Waiting is not nil, and the look continues after it, whatever its result. See [Automatic]. Do not call it for clients that may only
// read.
func (s *Session) Look(ctx context.Context, path Name, sign Sign, wake func()) *Waiting {
	t := s.table
	name := t.Rules().Automatic(path)
	if name == "" {
		return nil
	}
	a := &acquisition{session: s.s, name: name, wake: wake, path: path, look: true, sign: sign}
	r, err := t.decideIfValid(ctx, func(now Instant, out *outcome) { t.st.decideLook(a, now, out) })
	if err != nil { // suspended, or a full disk: the look still counts
		a.recordOnly = true
		t.decide(ctx, func(now Instant, out *outcome) { t.st.decideLook(a, now, out) })
	}
	if r.waiter != nil {
		return &Waiting{session: s, waiter: r.waiter}
	}
	return nil
}

// Change decides whether the session may change a path that has an automatic lock. The first change of a job acquires the lock. While another
// job holds it, the session waits for the time of its rule, and the Waiting is not nil. A *JobError refuses this change and all later ones
// of the job under this lock. Call MayWrite and Write as well: they check the hold and other locks.
func (s *Session) Change(ctx context.Context, path Name, sign Sign, wake func()) (*Waiting, error) {
	t := s.table
	name := t.Rules().Automatic(path)
	if name == "" {
		return nil, nil
	}
	a := &acquisition{session: s.s, name: name, wake: wake, path: path, sign: sign}
	r, err := t.decideIfValid(ctx, func(now Instant, out *outcome) { t.st.decideChange(a, now, out) })
	var refused *JobError
	switch {
	case r.waiter != nil:
		return &Waiting{session: s, waiter: r.waiter}, nil
	case err == nil && r.granted.Token != 0:
		return nil, t.log.Wait(ctx, r.end, true)
	case err == nil || errors.As(err, &refused) || errors.Is(err, ErrEnded) || ctx.Err() != nil:
		return nil, err
	}
	// Suspended, or a full disk. A single refused command would harm the job, so all its changes are refused.
	refused = &JobError{Cause: "other", Why: err}
	t.decide(ctx, func(now Instant, out *outcome) {
		rule := t.st.rules.automaticFor(name)
		refused.Report = rule == nil || rule.automatic.Report
		if !refused.Report {
			if s.s.closed { // it has no job any more
				return
			}
			v := t.st.viewOf(s.s, name, rule, now.Boot)
			out.do(func(*State) { v.refuse(refused, s.s.owner, now) })
		}
	})
	if refused.Report {
		return nil, nil
	}
	return nil, refused
}

// Wrote is Work of a client that changed a file or uploads bytes. It is also a sign of life for the automatic locks of its job.
func (s *Session) Wrote() {
	s.Work()
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.st.rules.automaticPatterns) == 0 && len(t.st.sites) == 0 || s.s.closed {
		return
	}
	now := t.clock.Now().Boot
	s.s.eachView(func(v *jobView) {
		if v.hold != nil {
			v.hold.idleFrom = now
		}
	})
}

// RefusedJob is a job that may not change the files of an automatic lock.
type RefusedJob struct {
	Lock  Name
	Owner Owner   // of the session that was refused first
	At    Instant // time of the refusal
	Why   *JobError
}

// RefusedJobs returns the refused jobs, sorted by lock and time.
func (t *Table) RefusedJobs() []RefusedJob {
	var all []RefusedJob
	t.mu.Lock()
	now := t.clock.Now().Boot
	if len(t.st.sites) == 0 {
		t.mu.Unlock()
		return nil
	}
	steps := 0
	t.st.eachView(func(v *jobView) {
		if v.isRefused(t.st, now) {
			all = append(all, RefusedJob{v.name, v.refusedOwner, v.refusedAt, v.refused})
		}
		t.walkLocked(&steps)
	})
	t.mu.Unlock()
	slices.SortFunc(all, func(a, b RefusedJob) int {
		return cmp.Or(strings.Compare(string(a.Lock), string(b.Lock)), cmp.Compare(a.At.Boot, b.At.Boot))
	})
	return all
}

// isRefused reports whether changes of the job are refused now. After its last session, later sessions may still continue it.
func (v *jobView) isRefused(st *State, now Time) bool {
	return v.refused != nil && (v.job.open > 0 && v.inheritUntil == 0 || now <= max(v.inheritUntil, later(v.job.ended, st.graceAt(v.name))))
}

// eachView visits the views of all jobs.
func (st *State) eachView(visit func(*jobView)) {
	for _, j := range st.jobs {
		for _, v := range j.views {
			visit(v)
		}
	}
}

// ClearJobs ends the refusals of the jobs of a lock, or of those of one account and address, and returns their number. The jobs count as
// having seen all changes.
func (t *Table) ClearJobs(ctx context.Context, name Name, account, address string) int {
	cleared := 0
	t.decide(ctx, func(now Instant, out *outcome) {
		cleared = 0
		t.st.eachView(func(v *jobView) {
			if v.name == name && v.isRefused(t.st, now.Boot) && (account == "" || v.refusedOwner.Account == account && (address == "" || v.refusedOwner.Address == address)) {
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
