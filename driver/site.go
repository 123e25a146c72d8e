package driver

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/ftplockd/ftplockd/control"
	"github.com/ftplockd/ftplockd/lock"
)

// site is SITE (RFC 959 section 4.1.3): what FTP has no command for. Each is answered here;
// ftpserverlib's own SITE MKDIR and RMDIR would say 250 on a held lock and remove trees.
func (s *session) site(cmd control.Command) control.Decision {
	verb, rest := word(cmd.Param)
	switch strings.ToUpper(verb) {
	case "HELP":
		return s.siteHelp()
	case "LOCKS":
		return s.siteLocks(strings.TrimSpace(rest))
	case "LOCK":
		return s.siteLock(rest)
	case "WAIT":
		return s.siteWait(strings.TrimSpace(rest))
	case "CHMOD":
		return s.siteChmod(rest)
	case "MKDIR", "RMDIR":
		return reply(502, "say MKD and RMD instead")
	case "UTIME", "SYMLINK", "CHOWN", "CHGRP", "UMASK", "IDLE":
		return reply(502, "this server does not know SITE "+strings.ToUpper(verb))
	}
	return reply(500, quoted(verb)+" is no SITE command of this server: see SITE HELP")
}

// word splits the first word off.
func word(s string) (first, rest string) {
	first, rest, _ = strings.Cut(strings.TrimLeft(s, " "), " ")
	return first, rest
}

func (s *session) siteHelp() control.Decision {
	return control.Answer(control.Reply{Code: 214, Text: "SITE commands:", Lines: []string{
		" SITE LOCKS [glob]        the locks that are held, all or those whose path the glob fits",
		" SITE LOCK INFO path      who holds it, since when and until when",
		" SITE LOCK AS nonce       sessions of one account with one nonce speak for each other's locks",
		" SITE LOCK AGE seconds    a shorter age for the locks that this session takes next; 0: the rule's",
		" SITE LOCK RENEW path     a full age from now",
		" SITE LOCK BREAK path     take it away from its holder (administrators)",
		" SITE WAIT seconds        how long MKD on a held lock waits for it, and RMD of a lock for those below it; 0: not at all",
		" SITE CHMOD mode path     change the mode of a file (accounts that may)",
	}})
}

func (s *session) siteLock(param string) control.Decision {
	verb, rest := word(param)
	if strings.TrimSpace(rest) == "" {
		return reply(501, "SITE LOCK wants INFO, AS, AGE, RENEW or BREAK, and an argument")
	}
	switch strings.ToUpper(verb) {
	case "INFO":
		return s.siteLockInfo(rest)
	case "AS":
		if err := s.client.locks.SetNonce(rest); err != nil {
			return reply(501, err.Error())
		}
		return reply(200, "sessions with this nonce are the same job")
	case "AGE":
		return s.siteLockAge(strings.TrimSpace(rest))
	case "RENEW":
		return s.siteLockRenew(rest)
	case "BREAK":
		return s.siteLockBreak(rest)
	}
	return reply(501, "SITE LOCK wants INFO, AS, AGE, RENEW or BREAK")
}

// maxAgeSeconds keeps a number of seconds within what a time.Duration holds.
const maxAgeSeconds = 1 << 32

func (s *session) siteLockAge(param string) control.Decision {
	seconds, err := strconv.ParseUint(param, 10, 64)
	if err != nil || seconds > maxAgeSeconds {
		return reply(501, "SITE LOCK AGE wants a number of seconds")
	}
	s.client.locks.SetAge(time.Duration(seconds) * time.Second)
	return reply(200, "for the locks that this session takes next")
}

func (s *session) siteLockInfo(param string) control.Decision {
	view, err := s.abs(param)
	if err != nil {
		return s.refuse("", err)
	}
	n, err := s.client.resolve(view)
	if err != nil {
		return s.refuse(view, err)
	}
	status, held := s.client.table().Get(n)
	if !held {
		return s.refuse(view, lock.ErrNotHeld)
	}
	return control.Answer(control.Reply{Code: 211, Text: "Lock " + view, Lines: lockLines(status)})
}

func (s *session) siteLockRenew(param string) control.Decision {
	return s.withLock(param, func(view string, n lock.Name) (string, error) {
		h, err := s.client.locks.Renew(s.context(), n)
		return quotedPath(view) + s.granted(h), err
	})
}

func (s *session) siteLockBreak(param string) control.Decision {
	if !s.client.account.Admin {
		return reply(550, "only administrators break locks")
	}
	return s.withLock(param, func(view string, n lock.Name) (string, error) {
		status, _ := s.client.table().Get(n)
		if err := s.client.table().Break(s.context(), n, 0, s.client.locks.Owner(), ""); err != nil {
			return "", err
		}
		s.server.dropNotes(n, status.Holds)
		return view + " broken", nil
	})
}

// withLock answers 200 and what operate says of the lock of that path.
func (s *session) withLock(param string, operate func(view string, n lock.Name) (string, error)) control.Decision {
	view, err := s.abs(param)
	if err != nil {
		return s.refuse("", err)
	}
	n, err := s.client.resolve(view)
	if err != nil {
		return s.refuse(view, err)
	}
	text, err := operate(view, n)
	if err != nil {
		return s.refuse(view, err)
	}
	return reply(200, text)
}

// siteLocks lists the locks that the account can see, all or those that the glob fits.
func (s *session) siteLocks(pattern string) control.Decision {
	fits := func(string) bool { return true }
	if pattern != "" {
		glob, err := lock.NewGlob(pattern)
		if err != nil {
			return reply(501, "no such pattern: "+quoted(pattern))
		}
		fits = func(view string) bool { return glob.Match(lock.Name(view)) }
	}
	var lines []string
	for _, v := range s.server.visible(s.client.account) {
		if fits(v.view) {
			lines = append(lines, " "+v.view+": "+strings.Join(trimmed(lockLines(v.status)), "; "))
		}
	}
	if len(lines) == 0 {
		return reply(211, "no locks are held")
	}
	return control.Answer(control.Reply{Code: 211, Text: fmt.Sprintf("%d locks are held:", len(lines)), Lines: lines})
}

func trimmed(lines []string) []string {
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return lines
}

// lockLines describe the holds of a lock.
func lockLines(status lock.Status) []string {
	var lines []string
	for _, h := range status.Holds {
		expires := "expires in " + status.Remaining.Round(time.Second).String()
		if status.Never {
			expires = "never expires"
		}
		how := " held by "
		if h.Shared {
			how = " shared by "
		}
		lines = append(lines, fmt.Sprintf("%s%s for %s, %s, token %d", how,
			h.Owner, status.Held.Round(time.Second), expires, h.Token))
	}
	if status.Waiting > 0 {
		lines = append(lines, fmt.Sprintf(" %d in the queue", status.Waiting))
	}
	return lines
}

// siteChmod is SITE CHMOD: an octal mode of permission bits, and a path.
func (s *session) siteChmod(param string) control.Decision {
	mode, name := word(param)
	bits, err := strconv.ParseUint(mode, 8, 32)
	if err != nil || bits > 0o777 || name == "" {
		return reply(501, "SITE CHMOD wants an octal mode of at most 777 and a path")
	}
	return s.withPath(name, 200, "has mode "+mode, func(view string) error {
		return s.client.Chmod(view, fs.FileMode(bits))
	})
}
