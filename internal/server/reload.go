package server

import (
	"context"
	"crypto/tls"
	"errors"

	"github.com/ftplockd/ftplockd/config"
	"github.com/ftplockd/ftplockd/internal/event"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// Reloaded is the result of a reload.
type Reloaded struct {
	NeedRestart []string `json:"need_restart"` // the changed keys that need a restart
	Warnings    []string `json:"warnings"`     // the warnings of "config check"
}

// reload reads the configuration again and uses all of it, except the keys that need a restart, or nothing. The steps that can fail come
// first.
func (s *server) reload(ctx context.Context) (done Reloaded, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.election.state().name == takingOver {
		return done, errors.New("this server is taking over: try again")
	}
	next, err := s.options.Load()
	if err != nil {
		return done, err
	}
	hasPair := next.TLS.Mode != config.TLSOff // before KeepRestartKeys
	done.NeedRestart = next.KeepRestartKeys(s.config)
	next, password, err := s.withAccount(next)
	if err != nil {
		return done, err
	}
	rules, err := lock.NewRules(RulesOf(next))
	if err != nil {
		return done, err
	}
	var pair *tls.Certificate
	if hasPair { // also if it is for the next start
		if pair, err = readPair(next.TLS.Certificate, next.TLS.Key); err != nil {
			return done, err
		}
	}
	if err := checkHooks(next); err != nil {
		return done, err
	}
	v := s.service.Load() // nil: the server stands by
	if v != nil {
		if err := v.makePrefixes(rules); err != nil {
			return done, err
		}
	}

	done.Warnings = s.logWarnings(next)
	for _, key := range done.NeedRestart {
		s.log.Warn("this change needs a restart; until then the server uses the old value", "key", key)
	}
	if pair != nil && s.tls != nil {
		s.tls.Store(pair)
	}
	if v != nil {
		v.apply(next, rules)
	}
	s.public.setName(ctx, next.FTP.PublicAddress)
	s.config, s.builtinPassword = next, password
	s.logins.Store(next)
	if s.election != nil {
		s.election.cluster.SetSettings(sharedSettings(next, password != ""))
	}
	s.sinks.hooks.Set(hooksOf(next))
	s.sinks.bus.Publish(event.Event{Kind: event.Reload})
	return done, nil
}

// apply makes a configuration effective.
func (v *service) apply(c *config.Config, rules *lock.Rules) {
	v.hostdir.SetRules(rules)
	v.table.SetRules(rules)
	v.jobs.SetRules(jobRulesOf(c, rules))
	v.tree.SetOptions(c.Files.Mode.FileMode, c.Files.Durable)
	v.driver.SetSettings(v.server.settings(c))
	v.conns.SetLimits(limits(c))
	v.warnOfHomes(c)
}
