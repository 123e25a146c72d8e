package driver

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// factNames are the facts of a lock, as FEAT lists them. docs/locks.md explains each.
const factNames = "type;token;account;address;note;since;held;expires;left;longest;age;idle;grace;shared;automatic;mine;adopted;waiting;place;mkd;"

// factTime is a time-val of RFC 3659 section 2.3.
const factTime = "20060102150405.000"

// facts is the beginning of a line in the form of RFC 3659 section 7.2: fact=value pairs, each with a semicolon. A path follows them.
type facts struct{ strings.Builder }

// escapes replaces the characters that would end a value.
var escapes = strings.NewReplacer("%", "%25", ";", "%3B", " ", "%20", "\r", "%0D", "\n", "%0A")

func (f *facts) add(name, value string) {
	f.WriteString(name + "=" + escapes.Replace(value) + ";")
}

func (f *facts) yesNo(name string, value bool) {
	f.add(name, map[bool]string{true: "yes", false: "no"}[value])
}

func (f *facts) seconds(name string, d time.Duration) {
	f.add(name, strconv.FormatFloat(d.Seconds(), 'f', 3, 64))
}

// factLines returns a line of facts for each hold of a lock, or one line for a lock that is not held.
func factLines(view string, v lock.View, now lock.Instant) (lines []string) {
	line := func(f *facts) {
		f.add("waiting", strconv.Itoa(v.Waiting))
		if v.Place.At > 0 {
			f.add("place", strconv.Itoa(v.Place.At))
		}
		f.add("mkd", nextMkd(v.Next))
		lines = append(lines, " "+f.String()+" "+view)
	}
	for _, h := range v.Seen {
		f := new(facts)
		f.hold(h, now)
		line(f)
	}
	if len(v.Seen) == 0 {
		f := new(facts)
		f.add("type", map[bool]string{true: "free", false: "busy"}[v.Next == nil])
		line(f)
	}
	return lines
}

// nextMkd returns the result of MKD, if err is the error that it would return.
func nextMkd(err error) string {
	switch {
	case err == nil:
		return "granted"
	case errors.Is(err, lock.ErrHeld):
		return "later"
	}
	return "refused"
}

func (f *facts) hold(h lock.SeenHold, now lock.Instant) {
	f.add("type", "lock")
	f.add("token", strconv.FormatUint(uint64(h.Token), 10))
	f.add("account", h.Owner.Account)
	f.add("address", h.Owner.Address)
	if h.Note != "" {
		f.add("note", h.Note)
	}
	f.add("since", h.Acquired.Wall.UTC().Format(factTime))
	f.seconds("held", max(now.Boot-h.Acquired.Boot, 0))
	if !h.Never {
		f.add("expires", now.Wall.Add(h.Remaining).UTC().Format(factTime))
		f.seconds("left", h.Remaining)
		if h.Latest >= h.Remaining {
			f.seconds("longest", h.Latest)
		}
	}
	if age := h.MaxAge(); age > 0 {
		f.seconds("age", age)
	}
	if h.Idle > 0 {
		f.seconds("idle", h.Idle)
	}
	if grace, ends := h.Grace(); ends {
		f.seconds("grace", grace)
	}
	f.yesNo("shared", h.Shared)
	f.yesNo("automatic", h.Job)
	mine := "no"
	switch {
	case h.Own:
		mine = "session"
	case h.SameJobKey:
		mine = "job"
	}
	f.add("mine", mine)
	if h.Adopted != 0 {
		f.add("adopted", strconv.FormatUint(uint64(h.Adopted), 10))
	}
}

// nearLockName returns a similar name that is a lock, as the client sees it; "" if there is none.
func (c *client) nearLockName(n lock.Name) string {
	name := strings.ToLower(strings.TrimSpace(string(n)))
	near := []string{name, strings.ReplaceAll(name, "-", "_"), string(n) + "_lock", string(n) + ".lock"}
	for _, dir := range c.table().Rules().Prefixes() {
		near = append(near, path.Join(string(dir), path.Base(string(n))))
	}
	for _, other := range near {
		if view, ok := inView(c.account.Home, lock.Name(other)); ok && c.isLockName(lock.Name(other)) {
			return view
		}
	}
	return ""
}

// siteLockInfo is SITE LOCK INFO: lines for people, then lines of facts. If the name is no lock, or waiting does not help, the reply is 550.
func (c *client) siteLockInfo(param string) control.Reply {
	return c.withLock(param, func(view string, n lock.Name) (control.Reply, error) {
		v, err := c.locks.View(n)
		if c.jobs.Holds(n) {
			v.Next = nil
		}
		err = cmp.Or(c.table().Valid(), err) // a client acts on this reply
		if errors.Is(err, lock.ErrNoRule) {
			if near := c.nearLockName(n); near != "" {
				return control.Reply{Code: 550, Text: view + ": " + err.Error() + "; " + near + " would be one"}, nil
			}
		}
		if err != nil {
			return control.Reply{}, err
		}
		held := len(v.Holds) > 0
		if !held {
			_, host, err := c.actsAsLock(n)
			if err != nil {
				return control.Reply{}, err
			}
			if v.Next = cmp.Or(v.Next, host); nextMkd(v.Next) == "refused" {
				return control.Reply{}, v.Next
			}
		}
		lines := lockLines(v.Status)
		if v.Place.At > 0 {
			lines = append(lines, fmt.Sprintf(" your place %d of %d in the queue, kept for %s", v.Place.At, v.Place.Of, v.Kept.Round(time.Second)))
		}
		switch {
		case !held && v.Next == nil:
			lines = append(lines, " not held")
		case !held:
			why, _ := c.explain(v.Next)
			lines = append(lines, " not held: "+why.text)
		}
		return control.Reply{Code: 211, Text: "Lock " + view, Lines: append(lines, factLines(view, v, c.server.clock.Now())...)}, nil
	})
}
