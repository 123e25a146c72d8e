package main

import (
	"context"
	"fmt"
	"os"
	"path"
	"time"

	"github.com/ftplockd/ftplockd/locksmith"
)

// target is what a PROFILE or URL names: the lock, and how to get at it.
type target struct {
	name    string // for people: never with a password
	connect locksmith.Server
	path    string // of the lock; "": the URL has none
	options locksmith.Options
	try     bool

	secret secret        // where the password comes from
	dir    string        // where its relative file names begin
	wait   time.Duration // for the lock; 0: for ever
	until  time.Time     // when that is over; zero: never

	verbose  bool
	conflict int // the exit status if another client holds the lock
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
	t.try, t.verbose, t.conflict = s.try, s.verbose, s.conflict
	if s.timeout.duration > 0 {
		t.wait = time.Duration(s.timeout.duration)
	}
	if t.wait > 0 && !s.try {
		t.until = time.Now().Add(t.wait)
	}
	if s.timeout.duration > 0 && !s.try { // it is for all that is waited for
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, t.until, fail(exitProfile, "%s: password of %s: there was none within the time", t.name, t.user()))
		defer cancel()
	}
	t.connect.Password, err = t.password(ctx)
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
		return nil, err
	}
	p, ok := all.all[arg]
	if !ok {
		return nil, fail(exitProfile, "there is no profile %q in %s", arg, all.file)
	}
	return p.target(arg, all.dir(), s.shared)
}

// needLock complains about a URL that names no lock.
func (t *target) needLock() error {
	if t.path == "" {
		return fail(exitUsage, "%s: the URL names no lock: ftp://user@host/phone_lock", t.name)
	}
	return nil
}

// server is the address with its port.
func (t *target) server() string {
	address, _ := t.connect.HostPort() // Dial says what is wrong with it
	return address
}

// inside reports whether this is the lock under which we were started ourselves, by "netlock run". Of a relative path it knows only where
// it leads if the account begins at the root.
func (t *target) inside() bool {
	lock := path.Clean(t.path)
	if !path.IsAbs(lock) {
		lock = path.Join("/", t.connect.Dir, lock)
	}
	return !t.options.Shared && os.Getenv(pathVariable) == lock && os.Getenv(serverVariable) == t.server()
}

// needOther refuses to wait for the lock under which we were started ourselves.
func (t *target) needOther() error {
	if t.inside() {
		return fail(exitUsage, "%s: %s is already held by the netlock that runs this: it would wait for itself (or else unset %s)", t.name, os.Getenv(pathVariable), pathVariable)
	}
	return nil
}

// tell says on standard error what is done, with --verbose.
func (t *target) tell(format string, args ...any) {
	if t.verbose {
		_ = heard(say(os.Stderr, "netlock: "+oneLine(fmt.Sprintf(format, args...))+"\n"))
	}
}

// where is the lock, for people.
func (t *target) where() string {
	return fmt.Sprintf("%s (%s)", t.path, t.connect.Address)
}
