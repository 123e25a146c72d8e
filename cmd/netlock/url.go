package main

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/ftplockd/ftplockd/locksmith"
)

// isURL tells a URL from the name of a profile.
func isURL(arg string) bool { return strings.Contains(arg, "://") }

// schemes are what URLs begin with, and how the connection is protected then.
func schemes() map[string]locksmith.TLSMode {
	return map[string]locksmith.TLSMode{
		"ftp": locksmith.TLSOff, "ftps": locksmith.TLSImplicit, "ftpes": locksmith.TLSExplicit,
	}
}

// parseURL makes a target of ftp://user:password@host:port/path (RFC 1738 section 3.2). The path is relative to the directory after
// login; one that begins with %2F is absolute. It may be empty. Errors never show the password.
func parseURL(raw string, shared bool) (*target, error) {
	u, err := url.Parse(raw)
	if err != nil {
		// What the library says of it may have the password in it.
		return nil, errors.New("that is no URL: ftp://user@host:port/phone_lock; in a user or password / : @ are written %2F %3A %40, and % is %25 everywhere")
	}
	mode, ok := schemes()[u.Scheme]
	switch {
	case !ok:
		return nil, fmt.Errorf("%s: a URL begins with ftp://, ftpes:// (explicit TLS) or ftps:// (implicit TLS)", u.Redacted())
	case u.Hostname() == "":
		return nil, fmt.Errorf("%s: a URL names a host: ftp://user@host/phone_lock", u.Redacted())
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, fmt.Errorf("%s: in a path ? is written %%3F and # is written %%23", u.Redacted())
	}
	path, err := urlPath(u)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", u.Redacted(), err)
	}
	password, _ := u.User.Password()
	t := &target{name: nameless(u), secret: secret{password: password}}
	t.connect = locksmith.Server{Address: hostPort(u), User: u.User.Username(), TLS: mode}
	t.path, t.options.Shared = path, shared
	return t, nil
}

// nameless is the URL without its password, for people.
func nameless(u *url.URL) string {
	shown := *u
	if u.User != nil {
		shown.User = url.User(u.User.Username())
	}
	return shown.String()
}

func hostPort(u *url.URL) string {
	if u.Port() == "" {
		return u.Hostname()
	}
	return net.JoinHostPort(u.Hostname(), u.Port())
}

// urlPath decodes each part of the path for itself: a slash that was written %2F begins an absolute path, or is part of a name,
// which no FTP server has.
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
