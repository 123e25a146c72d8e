package server

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/ftplockd/ftplockd/config"
	"github.com/ftplockd/ftplockd/driver"
	"github.com/ftplockd/ftplockd/internal/job"
	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/status"
	"github.com/ftplockd/ftplockd/internal/web"
)

// source implements web.Source.
type source struct{ s *server }

func (p source) Locks() []status.Lock {
	if v := p.s.service.Load(); v != nil {
		return status.Locks(v.table.All(), v.jobs, p.s.clock.Now())
	}
	return []status.Lock{}
}

func (p source) Count() (held, waiting int) {
	n := fromService(p.s, func(v *service) lock.Count { return v.table.Count() })
	return n.Holds, n.Waiting
}

func (p source) Waiting(name string) []status.Waiter {
	return status.Waiters(fromService(p.s, func(v *service) []lock.Queued { return v.table.Queue(lock.Name(name)) }))
}

func (p source) History(ctx context.Context, name string, limit int) ([]status.Event, error) {
	v, err := p.s.serving()
	if err != nil {
		return nil, err
	}
	var last []status.Event
	for e, err := range v.log.History(ctx, lock.Name(name)) {
		if err != nil {
			return nil, err
		}
		if last = append(last, status.FromEntry(e)); len(last) >= 2*limit {
			last = slices.Delete(last, 0, len(last)-limit)
		}
	}
	last = last[max(0, len(last)-limit):]
	slices.Reverse(last)
	return last, nil
}

func (p source) Rule(name string) (facts []web.Fact) {
	return fromService(p.s, func(v *service) []web.Fact {
		rule, ok := v.table.Rules().For(lock.Name(name))
		if !ok {
			return nil
		}
		add := func(key, value string) {
			if value != "" && value != "0s" {
				facts = append(facts, web.Fact{Key: key, Value: value})
			}
		}
		add("match", rule.Match)
		add("max_age", rule.MaxAge.String())
		add("max_idle", rule.MaxIdle.String())
		add("on_disconnect", string(rule.OnDisconnect))
		add("grace", rule.Grace.String())
		add("lock_delay", rule.LockDelay.String())
		add("release", string(rule.Release))
		// A hold's rule has no patterns: they are in the configuration.
		for _, r := range p.s.logins.Load().Rules {
			if r.Match == rule.Match {
				add("wait", r.Wait.String())
				add("shared", strings.Join(r.Shared, ", "))
				add("protects", strings.Join(r.Protects, ", "))
				break
			}
		}
		return facts
	})
}

func (p source) RefusedJobs() []status.RefusedJob {
	return status.RefusedJobs(fromService(p.s, func(v *service) []job.Refused { return v.jobs.Refused() }))
}

func (p source) Sessions() []status.Session {
	return status.Sessions(fromService(p.s, func(v *service) []lock.SessionStatus { return v.table.Sessions() }))
}

func (p source) Transfers() []status.Transfer {
	all := []status.Transfer{}
	for _, t := range fromService(p.s, func(v *service) []driver.TransferStatus { return v.driver.Transfers() }) {
		all = append(all, status.Transfer{
			Session: t.Session.String(), Account: t.Account, Address: t.Address, Path: t.Path, PathEncoded: status.Encoded(t.Path),
			Upload: t.Upload, Bytes: t.Bytes, Started: t.Since.UTC(),
		})
	}
	return all
}

func (p source) Break(ctx context.Context, name string, token uint64, by, reason string) error {
	v, err := p.s.serving()
	if err != nil {
		return err
	}
	return v.table.Break(ctx, lock.Name(name), lock.Token(token), lock.Owner{Account: by}, reason)
}

func (p source) Kick(session, by, reason string) error {
	id, err := lock.ParseSessionID(session)
	if err != nil {
		return err
	}
	v, err := p.s.serving()
	if err != nil {
		return err
	}
	text := by + " ended this session"
	if reason != "" {
		text += ": " + reason
	}
	if !v.driver.Kick(id, text) {
		return fmt.Errorf("there is no session %s", id)
	}
	return nil
}

func (p source) LogIn(ctx context.Context, user, password string, from netip.Addr) (web.Account, error) {
	// The account before the password is checked: if a reload changes it in between, the page ends the session.
	before, _ := p.Account(user)
	a, err := driver.Logins{Guessing: p.s.guessing, Events: p.s.sinks.bus}.Check(ctx, accounts{p.s.logins.Load(), p.s.passwords},
		config.Attempt{Name: user, Password: password, From: from, Gone: func() bool { return ctx.Err() != nil }})
	before.Name = a.Name
	return before, err
}

func (p source) Account(name string) (web.Account, bool) {
	for _, a := range p.s.logins.Load().Accounts {
		if a.Name == name {
			return web.Account{Name: a.Name, CanView: a.Admin || a.Home == "/", Admin: a.Admin, Credentials: fmt.Sprint(a.Password, a.Networks)}, true
		}
	}
	return web.Account{}, false
}

func (p source) Valid() error {
	return fromService(p.s, func(v *service) error { return v.table.Valid() })
}

func (p source) State() string { return p.s.election.state().String() }

func (p source) Ready(ctx context.Context) error { return p.s.ready.await(ctx) }
