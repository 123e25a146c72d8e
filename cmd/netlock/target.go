package main

import (
	"context"
	"fmt"

	"github.com/ftplockd/ftplockd/locksmith"
)

// target is what a PROFILE or URL names: the lock, and how to get at it.
type target struct {
	name    string // for people: never with a password
	options locksmith.Options

	secret  secret // where the password comes from, until find has put it into options
	dir     string // where its relative file names begin
	askable bool   // may be asked for on the terminal, or come from NETLOCK_PASSWORD
}

// resolve finds out what an argument names, and the password for it. Its errors have a status.
func (s *settings) resolve(ctx context.Context, arg string) (*target, error) {
	if err := s.check(); err != nil {
		return nil, fail(exitUsage, "%w", err)
	}
	t, err := s.find(arg)
	if err != nil {
		return nil, err
	}
	t.options.Renew = t.options.Renew || s.renew
	switch {
	case s.try:
		t.options.Wait = -1
	case s.timeout > 0:
		t.options.Wait = s.timeout
	}
	t.options.Server.Password, err = t.password(ctx)
	switch {
	case ctx.Err() != nil:
		return nil, classify(context.Cause(ctx), t)
	case err != nil:
		return nil, fail(exitProfile, "%s: password of %s: %w", t.name, t.user(), err)
	}
	return t, nil
}

func (s *settings) find(arg string) (*target, error) {
	if isURL(arg) {
		t, err := parseURL(arg, s.shared)
		if err != nil {
			return nil, fail(exitUsage, "%w", err)
		}
		return t, nil
	}
	all, err := s.loadProfiles()
	if err != nil {
		return nil, brief(err)
	}
	p, ok := all.all[arg]
	if !ok {
		return nil, fail(exitProfile, "there is no profile %q in %s%s", arg, all.file, didYouMean(arg, append(commandNames(), all.names...)))
	}
	return p.target(arg, all.dir(), s.shared)
}

// needLock complains about a URL that names no lock.
func (t *target) needLock() error {
	if t.options.Path == "" {
		return fail(exitUsage, "%s: the URL names no lock: ftp://user@host/phone_lock", t.name)
	}
	return nil
}

// where is the lock, for people.
func (t *target) where() string {
	return fmt.Sprintf("%s (%s)", t.options.Path, t.options.Server.Address)
}
