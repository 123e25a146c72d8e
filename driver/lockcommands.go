package driver

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/ftplockd/ftplockd/control"
	"github.com/ftplockd/ftplockd/lock"
)

// mkd is MKD: acquire.
func (s *session) mkd(cmd control.Command) control.Decision {
	view, err := s.abs(cmd.Param)
	if err != nil {
		return s.refuse("", err)
	}
	client := s.client
	m, err := client.make(s.context(), view)
	if err != nil {
		return s.refuse(view, err)
	}
	switch {
	case m.waiting != nil:
		return control.Wait(s.waitsForLock(client, view, m))
	case m.lock:
		return control.Answer(s.acquired(client, view, m))
	}
	return reply(257, quotedPath(view)+" created")
}

// acquired is the reply that grants a lock.
func (s *session) acquired(client *client, view string, m made) control.Reply {
	name, token := m.name, m.hold.Token // all that is to be kept of m
	return control.Reply{
		Code: 257, Text: quotedPath(view) + s.granted(m.hold),
		Undelivered: func() { s.undeliver(client, name, token) },
	}
}

// quotedPath is a path as RFC 959 page 63 and appendix II have it: in quotes, quotes in it doubled.
func quotedPath(view string) string { return `"` + strings.ReplaceAll(view, `"`, `""`) + `"` }

// granted is what stands behind the path in the 257 of a lock. There is no quote in it: Net::FTP's
// pattern for the path goes to the last one. Who adopts learns from what: another hold of the same job may have begun meanwhile.
func (s *session) granted(h lock.Hold) string {
	text := " locked, token " + strconv.FormatUint(uint64(h.Token), 10)
	if h.Rule.MaxAge == 0 {
		text += ", never expires"
	} else {
		left := h.Rule.MaxAge - (s.server.clock.Now().Boot - h.Renewed.Boot)
		text += ", expires in " + max(0, left).Round(time.Second).String()
	}
	if h.Adopted != 0 {
		text += ", adopted from token " + strconv.FormatUint(uint64(h.Adopted), 10)
	}
	return text
}

// undeliver takes back a grant of which the client cannot have heard.
func (s *session) undeliver(c *client, n lock.Name, token lock.Token) {
	err := c.locks.Undo(context.WithoutCancel(s.context()), n, token)
	if err != nil && !errors.Is(err, lock.ErrStale) && !errors.Is(err, lock.ErrNotHeld) {
		s.log.Error("could not take back a grant that was not delivered", "name", string(n), "token", token, "err", err)
	}
}

// rmd is RMD: release.
func (s *session) rmd(cmd control.Command) control.Decision {
	view, err := s.abs(cmd.Param)
	if err != nil {
		return s.refuse("", err)
	}
	u, err := s.client.unmake(s.context(), view)
	switch {
	case err != nil:
		return s.refuse(view, err)
	case u.waiting != nil:
		return control.Wait(s.waitsForMembers(s.client, view, u))
	case u.again > 0:
		return reply(250, view+" is still held, RMD it "+strconv.Itoa(u.again)+" more")
	case u.lock:
		return reply(250, view+" released")
	}
	return reply(250, view+" removed")
}

func (s *session) pwd(control.Command) control.Decision { return reply(257, quotedPath(s.cwd)) }

func (s *session) cwdCommand(cmd control.Command) control.Decision { return s.changeTo(cmd.Param) }

func (s *session) cdup(control.Command) control.Decision { return s.changeTo("..") }

func (s *session) changeTo(param string) control.Decision {
	return s.withPath(param, 250, "is the current directory", func(view string) error {
		if err := s.client.enter(view); err != nil {
			return err
		}
		s.cwd = view
		return nil
	})
}
