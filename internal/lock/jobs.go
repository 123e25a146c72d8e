package lock

import (
	"context"
	"slices"
)

// OpenJob begins an automatic session: the server acquires locks by it for a job, see package job. These automatic locks differ from those
// of clients:
//
//   - They have no directory. The grant only checks that no directory of the host has the name.
//   - No session of a client acts for them.
//   - They end when the grace of their rule after the session is over, or at the time of EndAt.
//   - After the end of the session, a session of OpenJob adopts them if it has the same account and job key, or without a job key the same
//     account and address. So a job continues after a restart.
func (t *Table) OpenJob(o Owner) *Session { return t.open(&sessionState{owner: o, job: true}) }

// Granted reports whether any lock was ever granted, also before the start.
func (t *Table) Granted() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.st.last > 0
}

// EndAt makes the session's hold of the name end at the time at the latest, with the cause. It replaces the time of an earlier call; 0
// removes it. EndAt reports whether the session holds the name.
func (s *Session) EndAt(n Name, at Time, why Cause) bool {
	now := s.table.beginChange()
	defer s.table.endChange(now)
	h := s.s.holds[n]
	if h == nil || h.unacknowledged {
		return false
	}
	h.endAt, h.endCause = at, why
	s.table.st.arm(h)
	return true
}

// Remark appends a record to the history that changes nothing, with a cause such as CauseRefuse. hold has the name of the lock and the
// owner that the record is about. On a full disk only observers get it.
func (t *Table) Remark(ctx context.Context, why Cause, hold Hold, path Name, note string) error {
	r, err := t.decide(ctx, func(now Instant, out *outcome) {
		out.publish(why, hold, hold.Owner, note, Publication{Path: path}, now)
	})
	if err != nil {
		return err
	}
	return t.log.Wait(ctx, r.end, false)
}

// adoptsJob reports whether a session of OpenJob continues the job of a hold whose session has ended.
func (s *sessionState) adoptsJob(h *liveHold) bool {
	if !s.job || !h.Job || !h.session.closed || h.Owner.Account != s.owner.Account || h.Owner.JobKey != s.owner.JobKey {
		return false
	}
	return s.owner.JobKey != "" || h.session.network == s.network
}

// AutomaticLock returns the lock that protects a path only as long as no other rule does, see [Protection]; "" if there is none. The directory
// that contains protected paths has that lock, too. Locks that only report count.
func (r *Rules) AutomaticLock(path Name) (lock Name) {
	if len(r.automaticPatterns) == 0 || r.find(path) != nil {
		return ""
	}
	if path == "/" {
		path = ""
	}
	for _, p := range r.protectedPatterns {
		if !p.rule.protection.Automatic && p.protects(r, path) {
			return ""
		}
	}
	for _, p := range r.automaticPatterns {
		p.names(path, func(n Name) {
			if lock == "" && r.find(n) == p.rule {
				lock = n
			}
		})
		if lock != "" {
			return lock
		}
	}
	return ""
}

// HasAutomatic reports whether any lock is automatic, also those that only report.
func (r *Rules) HasAutomatic() bool { return len(r.automaticPatterns) > 0 }

// AutomaticAlike reports whether the same locks protect the same paths as automatic locks, and as those that only report.
func (r *Rules) AutomaticAlike(other *Rules) bool {
	return slices.EqualFunc(r.automaticPatterns, other.automaticPatterns, func(a, b *pattern) bool {
		return a.rule.holdRule.Match == b.rule.holdRule.Match && a.rule.protection.Advises == b.rule.protection.Advises && slices.Equal(a.parts, b.parts)
	})
}

// AutomaticTree returns the automatic lock that protects all paths at and below a directory; "" if there is none, or if another
// rule may protect a path there.
func (r *Rules) AutomaticTree(dir Name) (lock Name) {
	for _, p := range r.automaticPatterns {
		if last := p.parts[len(p.parts)-1]; last.kind == partDeep {
			p.names(dir, func(n Name) {
				if r.find(n) == p.rule {
					lock = n
				}
			})
		}
	}
	for _, p := range r.protectedPatterns {
		if lock != "" && !p.rule.protection.Automatic && (p.protects(r, dir) || p.below(dir)) {
			return ""
		}
	}
	return lock
}

// AutomaticRoot reports whether a path has an automatic lock and its parent directory has none.
func (r *Rules) AutomaticRoot(path Name) bool {
	return len(r.automaticPatterns) > 0 && r.AutomaticLock(path) != "" && r.AutomaticLock(path.Parent()) == ""
}

// protects reports whether a lock of the pattern protects the path, or may.
func (p *pattern) protects(r *Rules, path Name) (found bool) {
	whole := p.names(path, func(n Name) { found = found || r.find(n) == p.rule })
	return found || !whole
}

// compileAutomatic compiles the patterns of automatic locks, also of those that only report.
func (r *Rules) compileAutomatic() {
	enforced := r.protectedPatterns[:0:0]
	for _, p := range r.protectedPatterns {
		all := []*pattern{p}
		if p.rule.protection.Automatic {
			if root := p.rootPattern(); root != nil {
				all = append(all, root)
			}
			r.automaticPatterns = append(r.automaticPatterns, all...)
		}
		if !p.rule.protection.Advises {
			enforced = append(enforced, all...)
		}
	}
	r.protectedPatterns = enforced
}

// advises reports whether the rule of a name only advises.
func (st *State) advises(name Name) bool {
	rule := st.rules.find(name)
	return rule != nil && rule.protection.Advises
}
