package driver

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// factNames are the facts of a lock, as FEAT lists them. docs/locks.md explains each.
const factNames = "type;token;account;address;since;held;expires;left;longest;age;idle;grace;shared;automatic;mine;adopted;waiting;mkd;"

// factTime is a time-val of RFC 3659 section 2.3.
const factTime = "20060102150405.000"

// facts are the beginning of a line in the form of RFC 3659 section 7.2: fact=value pairs, each with a semicolon. A path follows them.
type facts struct{ strings.Builder }

// escapes has what would end a value.
var escapes = strings.NewReplacer("%", "%25", ";", "%3B", " ", "%20", "\r", "%0D", "\n", "%0A")

func (f *facts) add(name, value string) {
	f.WriteString(name + "=" + escapes.Replace(value) + ";")
}

func (f *facts) yesNo(name string, value bool) {
	if value {
		f.add(name, "yes")
	} else {
		f.add(name, "no")
	}
}

func (f *facts) seconds(name string, d time.Duration) {
	f.add(name, strconv.FormatFloat(d.Seconds(), 'f', 3, 64))
}

// factLines returns a line of facts for each hold of a lock, or one line for a lock that is not held.
func factLines(view string, v lock.View, now lock.Instant) (lines []string) {
	for _, h := range v.Seen {
		lines = append(lines, factLine(view, v, func(f *facts) { f.hold(h, now) }))
	}
	if len(v.Seen) == 0 {
		lines = append(lines, factLine(view, v, func(f *facts) { f.add("type", "busy") }))
	}
	return lines
}

func factLine(view string, v lock.View, first func(*facts)) string {
	f := new(facts)
	f.WriteByte(' ')
	first(f)
	f.add("waiting", strconv.Itoa(v.Waiting))
	f.add("mkd", nextMkd(v.Next))
	return f.String() + " " + view
}

// nextMkd returns what MKD of the lock would come to.
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
	f.yesNo("automatic", h.Automatic)
	switch {
	case h.Own:
		f.add("mine", "session")
	case h.Job:
		f.add("mine", "job")
	default:
		f.add("mine", "no")
	}
	if h.Adopted != 0 {
		f.add("adopted", strconv.FormatUint(uint64(h.Adopted), 10))
	}
}

// siteLockInfo is SITE LOCK INFO: lines for people, then lines of facts. A lock that MKD would get now is not held: 550.
func (c *client) siteLockInfo(param string) control.Reply {
	return c.withLock(param, func(view string, n lock.Name) (control.Reply, error) {
		v, err := c.locks.View(n)
		held := len(v.Holds) > 0
		if verr := c.table().Valid(); verr != nil { // a client acts on this reply
			err = verr
		}
		if err == nil && !held && v.Next == nil {
			v.Next = c.ofHost(n)
		}
		switch {
		case err != nil:
		case !held && v.Next == nil:
			err = lock.ErrNotHeld
		case !held && nextMkd(v.Next) == "refused":
			err = v.Next
		}
		if err != nil {
			return control.Reply{}, err
		}
		lines := lockLines(v.Status)
		if !held {
			why, _ := c.explain(v.Next)
			lines = append(lines, " not held: "+why.text)
		}
		return control.Reply{Code: 211, Text: "Lock " + view, Lines: append(lines, factLines(view, v, c.server.clock.Now())...)}, nil
	})
}

// ofHost returns a *HostError if a program on the host made a directory of the name, which keeps clients from the lock while it is empty.
func (c *client) ofHost(n lock.Name) error {
	if !c.server.directories {
		return nil
	}
	info, err := c.server.tree.Lstat(string(n))
	if err != nil || !info.IsDir() {
		return nil
	}
	dir, err := c.server.tree.Open(string(n))
	if err != nil {
		return nil
	}
	defer dir.Close()
	if names, _ := dir.Readdirnames(1); len(names) > 0 {
		return nil
	}
	return &lock.HostError{Name: n, Since: info.ModTime()}
}
