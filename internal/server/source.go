package server

import (
	"cmp"
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

var _ web.Source = (*admin)(nil)

func (a *admin) Locks() []status.Lock {
	if v := a.service.Load(); v != nil {
		return status.Locks(v.table.All(), v.jobs, a.clock.Now())
	}
	return []status.Lock{}
}

func (a *admin) Count() (held, waiting int) {
	n := fromService(a.server, func(v *service) lock.Count { return v.table.Count() })
	return n.Holds, n.Waiting
}

func (a *admin) Waiting(name string) []status.Waiter {
	return status.Waiters(fromService(a.server, func(v *service) []lock.Queued { return v.table.Queue(lock.Name(name)) }))
}

func (a *admin) History(ctx context.Context, name string, limit int) ([]status.Event, error) {
	v, err := a.serving()
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

func (a *admin) Rule(name string) (facts []web.Fact) {
	return fromService(a.server, func(v *service) []web.Fact {
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
		for _, r := range a.logins.Load().Rules {
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

func (a *admin) RefusedJobs() []status.RefusedJob {
	return status.RefusedJobs(fromService(a.server, func(v *service) []job.Refused { return v.jobs.Refused() }))
}

func (a *admin) Sessions() []status.Session {
	return status.Sessions(fromService(a.server, func(v *service) []lock.SessionStatus { return v.table.Sessions() }))
}

func (a *admin) Transfers() []status.Transfer {
	all := []status.Transfer{}
	for _, t := range fromService(a.server, func(v *service) []driver.TransferStatus { return v.driver.Transfers() }) {
		all = append(all, status.Transfer{
			Session: t.Session.String(), Account: t.Account, Address: t.Address, Path: t.Path, PathEncoded: status.Encoded(t.Path),
			Upload: t.Upload, Bytes: t.Bytes, Started: t.Since.UTC(),
		})
	}
	return all
}

func (a *admin) Break(ctx context.Context, name string, token uint64, by, reason string) error {
	v, err := a.serving()
	if err != nil {
		return err
	}
	return v.table.Break(ctx, lock.Name(name), lock.Token(token), lock.Owner{Account: by}, reason)
}

func (a *admin) Kick(session, by, reason string) error {
	id, err := lock.ParseSessionID(session)
	if err != nil {
		return err
	}
	v, err := a.serving()
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

func (a *admin) LogIn(ctx context.Context, user, password string, from netip.Addr) (web.Account, error) {
	// The account before the password is checked: if a reload changes it in between, the page ends the session.
	before, _ := a.Account(user)
	known, err := driver.Logins{Guessing: a.guessing, Events: a.sinks.bus}.Check(ctx, accounts{a.logins.Load(), a.passwords},
		config.Attempt{Name: user, Password: password, From: from, Gone: func() bool { return ctx.Err() != nil }})
	before.Name = known.Name
	return before, err
}

func (a *admin) Account(name string) (web.Account, bool) {
	for _, c := range a.logins.Load().Accounts {
		if c.Name == name {
			return web.Account{Name: name, CanView: c.Admin || c.Home == "/", Admin: c.Admin, Credentials: fmt.Sprint(c.Password, c.Networks)}, true
		}
	}
	return web.Account{}, false
}

func (a *admin) Valid() error {
	return fromService(a.server, func(v *service) error { return v.table.Valid() })
}

func (a *admin) State() string { return a.election.state().String() }

func (a *admin) Ready(ctx context.Context) error { return a.ready.await(ctx) }

// status returns the state of the server.
func (a *admin) status(ctx context.Context) status.Server {
	v := status.Server{
		Version: Version(), Started: a.started.UTC(), State: cmp.Or(a.State(), "serving"), Ready: true,
		Sessions: len(a.Sessions()), Transfers: a.Transfers(), RefusedJobs: a.RefusedJobs(),
	}
	v.Locks, v.Waiting = a.Count()
	if err := a.Ready(ctx); err != nil {
		v.Ready, v.Error = false, err.Error()
	}
	return v
}
