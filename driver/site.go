package driver

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"
	ftpserver "github.com/fclairamb/ftpserverlib"

	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// siteCommands are the commands of SITE (RFC 959 section 4.1.3), with their lines in SITE HELP. run gets the text after name.
var siteCommands = []struct {
	name, help string
	run        func(c *client, param string) control.Reply
}{
	{"LOCKS", "[glob]        the held locks; with a glob only those that match", (*client).siteLocks},
	{"LOCK INFO", "path      the holder, since when and until when, with facts for programs", (*client).siteLockInfo},
	{"LOCK AS", "key         sessions of one account with one job key act for each other's locks", (*client).siteLockAs},
	{"LOCK AGE", "seconds    a shorter age for locks that this session acquires from now on; 0: the rule's", (*client).siteLockAge},
	{"LOCK DISCONNECT", "RELEASE [seconds]  locks acquired from now on end that long after the connection closes, or earlier", (*client).siteLockDisconnect},
	{"LOCK NOTE", "text       a note for locks that this session acquires from now on, such as host and job", (*client).siteLockNote},
	{"LOCK RENEW", "path     a full age from now", (*client).siteLockRenew},
	{"LOCK BREAK", "token path  take it away from the holder with that token (administrators)", (*client).siteLockBreak},
	{"WAIT", "seconds        how long MKD of a held lock waits for it; 0: not at all", (*client).siteWait},
	{"CHMOD", "mode path     change the mode of a file (accounts that may)", (*client).siteChmod},
}

// Site implements ftpserver.ClientDriverExtensionSite. It replies to every SITE command: the library's own SITE MKDIR returns 250 for a
// held lock, and its SITE RMDIR removes trees.
func (c *client) Site(param string) *ftpserver.AnswerCommand {
	r := c.site(param)
	c.conn.Command().Reply(r)
	return &ftpserver.AnswerCommand{Code: r.Code, Message: r.Text}
}

func (c *client) site(param string) control.Reply {
	verb, param := word(param)
	name := strings.ToUpper(verb)
	if name == "LOCK" {
		var which string
		which, param = word(param)
		name += " " + strings.ToUpper(which)
	}
	var help []string
	for _, command := range siteCommands {
		switch {
		case command.name != name:
		case strings.HasPrefix(name, "LOCK ") && strings.TrimSpace(param) == "":
			return control.Reply{Code: 501, Text: "SITE " + name + " needs an argument"}
		default:
			return command.run(c, param)
		}
		help = append(help, " SITE "+command.name+" "+command.help)
	}
	switch {
	case name == "HELP":
		return control.Reply{Code: 214, Text: "SITE commands:", Lines: help}
	case strings.HasPrefix(name, "LOCK "):
		return control.Reply{Code: 501, Text: "SITE LOCK needs INFO, AS, AGE, DISCONNECT, NOTE, RENEW or BREAK, and an argument"}
	}
	return control.Reply{Code: 500, Text: control.Quoted(verb) + " is no SITE command of this server: see SITE HELP"}
}

// word splits the first word off.
func word(s string) (first, rest string) {
	first, rest, _ = strings.Cut(strings.TrimLeft(s, " "), " ")
	return first, rest
}

// seconds reads a number of seconds that a time.Duration can hold.
func seconds(param string) (time.Duration, bool) {
	n, err := strconv.ParseUint(strings.TrimSpace(param), 10, 64)
	return time.Duration(n) * time.Second, err == nil && n <= 1<<32
}

func (c *client) siteWait(param string) control.Reply {
	d, ok := seconds(param)
	if !ok {
		return control.Reply{Code: 501, Text: "SITE WAIT needs a number of seconds"}
	}
	c.locks.SetWait(d)
	if d == 0 {
		return control.Reply{Code: 200, Text: "this session does not wait for locks"}
	}
	return control.Reply{Code: 200, Text: "this session waits for a lock up to " + d.String()}
}

func (c *client) siteLockAs(jobKey string) control.Reply {
	if err := c.locks.SetJobKey(jobKey); err != nil {
		return control.Reply{Code: 501, Text: err.Error()}
	}
	c.jobs.Rejoin()
	return control.Reply{Code: 200, Text: "sessions with this job key are the same job"}
}

func (c *client) siteLockAge(param string) control.Reply {
	d, ok := seconds(param)
	if !ok {
		return control.Reply{Code: 501, Text: "SITE LOCK AGE needs a number of seconds"}
	}
	c.locks.SetAge(d)
	return control.Reply{Code: 200, Text: "applies to the locks that this session acquires from now on"}
}

// siteLockDisconnect is SITE LOCK DISCONNECT RELEASE: the next locks end that many seconds after their connection, or at the time of the rule
// if that is earlier.
func (c *client) siteLockDisconnect(param string) control.Reply {
	how, after := word(param)
	grace, ok := seconds(cmp.Or(strings.TrimSpace(after), "0"))
	if !ok || !strings.EqualFold(how, "RELEASE") {
		return control.Reply{Code: 501, Text: "SITE LOCK DISCONNECT needs RELEASE and perhaps a number of seconds"}
	}
	c.locks.SetDisconnect(grace)
	return control.Reply{Code: 200, Text: "locks that this session acquires from now on end " + grace.String() + " after its connection closes, or earlier"}
}

func (c *client) siteLockNote(text string) control.Reply {
	if err := c.locks.SetNote(text); err != nil {
		return control.Reply{Code: 501, Text: err.Error()}
	}
	return control.Reply{Code: 200, Text: "applies to the locks that this session acquires from now on"}
}

func (c *client) siteLockRenew(param string) control.Reply {
	return c.withLock(param, func(view string, n lock.Name) (control.Reply, error) {
		h, err := c.locks.Renew(c.server.context, n)
		if err != nil {
			return control.Reply{}, err
		}
		return control.Reply{Code: 200, Text: quotedPath(view) + c.granted(h, 0)}, nil
	})
}

func (c *client) siteLockBreak(param string) control.Reply {
	if !c.account.Admin {
		return control.Reply{Code: 550, Text: "only administrators break locks"}
	}
	first, path := word(param)
	token, err := strconv.ParseUint(first, 10, 64)
	if err != nil || path == "" {
		token, path = 0, param
	}
	return c.withLock(path, func(view string, n lock.Name) (control.Reply, error) {
		status, held := c.table().Get(n)
		if token == 0 && held {
			return control.Reply{Code: 550, Path: view, Text: tokens(status) + ": send SITE LOCK BREAK with the token before the path"}, nil
		}
		err := c.table().Break(c.server.context, n, lock.Token(token), c.locks.Owner(), "")
		if errors.Is(err, lock.ErrStale) {
			return control.Reply{Code: 550, Path: view, Text: fmt.Sprintf("token %d is not the lock's: %s", token, tokens(status))}, nil
		}
		return done(200, view, "broken"), err
	})
}

// tokens lists the tokens of a lock's holds, the newest first, with their holders.
func tokens(status lock.Status) string {
	var all []string
	for _, h := range slices.Backward(status.Holds) {
		all = append(all, fmt.Sprintf("token %d of %s", h.Token, h.Owner))
	}
	return strings.Join(all, ", ")
}

// withLock calls operate with the lock of a path, and returns its reply or that for its error.
func (c *client) withLock(param string, operate func(view string, n lock.Name) (control.Reply, error)) control.Reply {
	view := c.abs(param)
	n, err := c.resolve(view)
	var r control.Reply
	if err == nil {
		r, err = operate(view, n)
	}
	if err != nil {
		return c.replyFor(view, err)
	}
	return r
}

// maxGlob is the length of the longest glob of SITE LOCKS.
const maxGlob = 256

// lockGlob checks a glob from a client, and adds the leading slash if it has none. It refuses braces: thirty of them match forever.
func lockGlob(text string) (string, error) {
	glob := "/" + strings.TrimPrefix(text, "/")
	switch {
	case len(text) > maxGlob:
		return "", errors.New("a pattern has at most 256 bytes")
	case strings.ContainsAny(text, "{}"):
		return "", errors.New("a pattern here has *, **, ? and [a-z], and no braces")
	case !doublestar.ValidatePattern(glob):
		return "", errors.New("no such pattern: " + control.Quoted(text))
	}
	return glob, nil
}

// siteLocks lists the locks within the account's home, all or those that the glob matches.
func (c *client) siteLocks(param string) control.Reply {
	pattern := strings.TrimSpace(param)
	glob, err := lockGlob(pattern)
	if err != nil {
		return control.Reply{Code: 501, Text: err.Error()}
	}
	var names []lock.Name
	began := time.Now()
	for _, n := range c.table().Names() {
		view, ok := inView(c.account.Home, n)
		switch {
		case !ok:
		case time.Since(began) > c.server.bounds.glob:
			return control.Reply{Code: 550, Text: "too much work for a pattern: shorten it"}
		case pattern == "" || doublestar.MatchUnvalidated(glob, view):
			names = append(names, n)
		}
	}
	if err := c.table().Valid(); err != nil { // as for SITE LOCK INFO
		return c.replyFor("SITE LOCKS", err)
	}
	if len(names) == 0 {
		return control.Reply{Code: 211, Text: "no locks are held"}
	}
	// Locks that end while the reply is sent are counted, and not listed.
	return control.Reply{Code: 211, Text: fmt.Sprintf("%d locks are held:", len(names)), Rows: func(line func(string) error) (string, error) {
		more, err := c.server.eachLock(c.account.Home, names, func(n lock.Name, view string) (err error) {
			v, verr := c.locks.View(n)
			if verr != nil || len(v.Holds) == 0 {
				return nil
			}
			for _, text := range append([]string{" " + view + ":" + strings.Join(lockLines(v.Status), ";")}, factLines(view, v, c.server.clock.Now())...) {
				err = cmp.Or(err, line(text))
			}
			return err
		})
		if more > 0 && err == nil {
			err = line(fmt.Sprintf(" and %d more", more))
		}
		return "", err
	}}
}

// lockLines describes the holds of a lock, one in a line.
func lockLines(status lock.Status) []string {
	var lines []string
	for _, h := range status.Holds {
		expires := "expires in " + status.Remaining.Round(time.Second).String()
		if status.Never {
			expires = "never expires"
		}
		how := "held"
		if h.Shared {
			how = "shared"
		}
		owner := h.Owner.String()
		if h.Note != "" {
			owner += " (" + h.Note + ")"
		}
		lines = append(lines, fmt.Sprintf(" %s by %s for %s, %s, token %d", how, owner, status.Held.Round(time.Second), expires, h.Token))
	}
	if status.Waiting > 0 {
		lines = append(lines, fmt.Sprintf(" %d in the queue", status.Waiting))
	}
	return lines
}

// siteChmod is SITE CHMOD with an octal mode and a path, for accounts that may. The library's own panics without a path (handle_files.go:268).
func (c *client) siteChmod(param string) control.Reply {
	mode, name := word(param)
	bits, err := strconv.ParseUint(mode, 8, 32)
	if err != nil || bits > 0o777 || name == "" {
		return control.Reply{Code: 501, Text: "SITE CHMOD needs an octal mode of at most 777 and a path"}
	}
	view := c.abs(name)
	err = errChmod
	if c.account.Chmod {
		err = c.setAttributes(view, func(n lock.Name) error {
			if err := c.checkFixed(n); err != nil {
				return err
			}
			return c.server.tree.Chmod(string(n), fs.FileMode(bits))
		})
	}
	if c.noteChange(err) != nil {
		return c.replyFor(view, err)
	}
	return done(200, view, "has mode "+mode)
}
