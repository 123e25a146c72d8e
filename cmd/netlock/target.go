package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path"
	"strings"
	"time"

	"github.com/ftplockd/ftplockd/locksmith"
)

// target is a parsed URL: a lock, with its server and account.
type target struct {
	*settings
	name    string // the URL without the password, for messages
	host    string
	connect locksmith.Config
	path    string // of the lock; "": the URL has none
	until   time.Time
}

// resolve reads a URL and finds the password for it. Its errors have a status.
func (s *settings) resolve(arg string) (*target, error) {
	err := s.normalize()
	var t *target
	if err == nil {
		t, err = parseURL(arg)
	}
	if err != nil {
		return nil, fail(exitUsage, "%w", err)
	}
	t.settings = s
	if s.timeout > 0 && !s.try {
		t.until = time.Now().Add(time.Duration(s.timeout))
	}
	if err := t.findPassword(); err != nil {
		return nil, fail(exitConfig, "%s: %w", t.name, err)
	}
	return t, nil
}

// schemes returns the TLS mode of each scheme of a URL.
func schemes() map[string]locksmith.TLSMode {
	return map[string]locksmith.TLSMode{
		"ftp": locksmith.TLSOff, "ftps": locksmith.TLSImplicit, "ftpes": locksmith.TLSExplicit,
	}
}

// parseURL parses ftp://user:password@host:port/path (RFC 1738 section 3.2). The path is relative to the directory after
// login; a path that begins with %2F is absolute. It may be empty. Errors never contain the password.
func parseURL(raw string) (*target, error) {
	u, err := url.Parse(raw)
	if err != nil {
		// The error of the library may contain the password.
		return nil, errors.New("the argument is not a URL such as ftp://user@host:port/phone_lock; in a user or password / : @ are written %2F %3A %40, and write % as %25 everywhere")
	}
	mode, ok := schemes()[u.Scheme]
	switch {
	case !ok:
		return nil, fmt.Errorf("%s: a URL begins with ftp://, ftpes:// (explicit TLS) or ftps:// (implicit TLS)", u.Redacted())
	case u.Hostname() == "":
		return nil, fmt.Errorf("%s: URL has no host: ftp://user@host/phone_lock", u.Redacted())
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, fmt.Errorf("%s: in a path ? is written %%3F and # is written %%23", u.Redacted())
	}
	path, err := urlPath(u)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", u.Redacted(), err)
	}
	address := u.Hostname()
	if u.Port() != "" {
		address = net.JoinHostPort(address, u.Port())
	}
	password, _ := u.User.Password()
	t := &target{host: u.Hostname(), path: path, connect: locksmith.Config{Address: address, User: u.User.Username(), Password: password, TLS: mode}}
	if u.User != nil {
		u.User = url.User(u.User.Username())
	}
	t.name = u.String()
	return t, nil
}

// urlPath decodes each part of the path by itself. A slash that is written %2F begins an absolute path. Elsewhere it would be part of a name, which
// no FTP server has.
func urlPath(u *url.URL) (string, error) {
	var parts []string
	for i, part := range strings.Split(strings.TrimPrefix(u.EscapedPath(), "/"), "/") {
		name, err := url.PathUnescape(part)
		if err != nil {
			return "", err
		}
		if strings.ContainsAny(name, "\r\n\x00") {
			return "", errors.New("a path is one line")
		}
		if rest := strings.TrimPrefix(name, "/"); strings.Contains(rest, "/") || i > 0 && rest != name {
			return "", errors.New("%2F belongs at the beginning of a path only")
		}
		parts = append(parts, name)
	}
	return strings.TrimSuffix(strings.Join(parts, "/"), "/"), nil
}

// needLock returns an error if the URL names no lock.
func (t *target) needLock() error {
	if t.path == "" {
		return fail(exitUsage, "%s: the URL names no lock: ftp://user@host/phone_lock", t.name)
	}
	return nil
}

// server returns the address with its port.
func (t *target) server() string {
	address, _ := t.connect.HostPort() // locksmith reports the error
	return address
}

// holdsSameLock reports whether the netlock that runs this process holds the lock. The server completes a relative path.
func (t *target) holdsSameLock(ctx context.Context) (bool, error) {
	outer := os.Getenv(pathVariable)
	if t.shared || outer == "" || os.Getenv(serverVariable) != t.server() || os.Getenv(accountVariable) != t.user() {
		return false, nil
	}
	if path.IsAbs(t.path) {
		return path.Clean(t.path) == outer, nil
	}
	info, err := t.info(ctx)
	return path.Clean(info.Path) == outer, err
}

// info requests the facts of the lock.
func (t *target) info(ctx context.Context) (locksmith.Status, error) {
	ctx, cancel := t.withDeadline(ctx)
	defer cancel()
	info, err := locksmith.Stat(ctx, t.connect, t.path)
	return info, classify(err, t)
}

// nearName returns the end of the server's reply about a path that is no lock, which may have a similar name that is one.
func (t *target) nearName() string {
	ctx, cancel := t.withDeadline(context.Background())
	defer cancel()
	if _, err := locksmith.Stat(ctx, t.connect, t.path); errors.Is(err, locksmith.ErrRefused) {
		if _, near, ok := strings.Cut(err.Error(), "; "); ok {
			return near
		}
	}
	return "check the lock's path (" + t.path + ")"
}

// withDeadline returns a context with the deadline of --timeout.
func (t *target) withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if t.until.IsZero() {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, t.until)
}

// user returns the account, for messages.
func (t *target) user() string { return cmp.Or(t.connect.User, "anonymous") }
