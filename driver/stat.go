package driver

import (
	"cmp"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// statFor is Stat for a command: it describes what has the name as far as the command wants to know it, and says the reply.
func (c *client) statFor(cmd *control.Command, view string) (info fs.FileInfo, r control.Reply, err error) {
	switch {
	case cmd.Is("CWD", "XCWD", "CDUP", "XCUP"):
		info, err = c.enter(view)
		return info, done(250, view, "is the current directory"), err
	case cmd.Is("RNFR"):
		c.renaming = ""
		if info, err = c.mayMoveFrom(view); err == nil {
			c.renaming = view
		}
		return info, done(350, view, "is there: now RNTO"), err
	case cmd.Is("STAT"):
		r, err = c.statListing(cmd.Param)
		return virtual{}, r, err // for the library, after everything was said
	}
	if cmd.Is("SIZE", "MDTM", "MLST") {
		c.look(cmd, view)
	}
	if info, err = c.stat(view); err != nil {
		return nil, r, err
	}
	switch {
	case cmd.Is("SIZE"): // RFC 3659 section 4: bytes as they lie on disk, in ASCII too, as vsftpd has it
		r, err = sizeOf(info)
	case cmd.Is("MDTM"): // RFC 3659 section 3; of a lock: when it was acquired
		r = modifiedAt(info)
	case cmd.Is("MLST"): // RFC 3659 section 7
		var n lock.Name
		n, err = c.subject(view, info)
		facts := c.formatFacts(entry{shown: view, info: info, name: n})
		r = control.Reply{Code: 250, Text: "facts about it", Lines: []string{" " + facts}}
	}
	return info, r, err
}

func modifiedAt(info fs.FileInfo) control.Reply {
	return control.Reply{Code: 213, Text: info.ModTime().UTC().Format(timeValue)}
}

func sizeOf(info fs.FileInfo) (control.Reply, error) {
	switch {
	case info.IsDir():
		return control.Reply{}, errIsDir
	case isMade(info): // a client that compares it with what RETR sends would think that bytes were lost
		return control.Reply{}, errChanging
	case !info.Mode().IsRegular():
		return control.Reply{}, files.ErrNotRegular
	}
	return control.Reply{Code: 213, Text: strconv.FormatInt(info.Size(), 10)}, nil
}

// statListing is STAT of a path, as LIST would show it (RFC 959 section 4.1.3).
func (c *client) statListing(param string) (control.Reply, error) {
	l, err := c.listing(formatLong, param)
	if err != nil {
		return control.Reply{}, err
	}
	return control.Reply{Code: 213, Text: "Status of " + l.view + ":", Rows: func(line func(string) error) (string, error) {
		defer l.Close()
		var sending error
		err := l.lines(func(text string) error {
			sending = line(" " + text)
			return sending
		})
		if err == nil || sending != nil {
			return "End of status", sending
		}
		return "This status is not complete: " + c.replyFor("", err).Text, nil
	}}, nil
}

// lstat describes what a name stands for: a lock, or what lies on disk. A lock's modification
// time is the moment when it was acquired.
func (c *client) lstat(n lock.Name) (fs.FileInfo, error) {
	if s, held := c.table().Get(n); held && !s.Holds[0].Automatic {
		return lockInfo(s), nil
	}
	return c.server.tree.Lstat(string(n))
}

// stat is lstat with the last link followed.
func (c *client) stat(view string) (fs.FileInfo, error) {
	if c.isStatus(view) {
		return c.server.statusInfo(c.account), nil
	}
	n, err := c.resolve(view)
	if err != nil {
		return nil, err
	}
	info, err := c.lstat(n)
	if err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return info, err
	}
	target, err := c.follow(view)
	if err != nil {
		return nil, err
	}
	return c.lstat(target)
}

// enter is CWD: it says whether the session may make that its working directory.
func (c *client) enter(view string) (fs.FileInfo, error) {
	if c.isStatus(view) {
		return nil, errNotDir
	}
	n, err := c.follow(view)
	if err != nil {
		return nil, err
	}
	info, err := c.lstat(n)
	switch {
	case err != nil:
		return nil, err
	case !info.IsDir():
		return nil, errNotDir
	case !c.isLock(n):
		return info, nil
	}
	return info, c.enterLock(n)
}

// enterLock refuses a session that does not speak for the lock: it would take the directory for its own.
func (c *client) enterLock(n lock.Name) error {
	if rule, ok := c.table().Rules().For(n); ok && rule.AllowCwd {
		return nil
	}
	s, held := c.table().Get(n)
	if !held {
		return cmp.Or(c.hostsLock(n), error(errNotHolder))
	}
	if _, err := c.locks.SpeaksFor(n); err != nil {
		return s.HeldError()
	}
	return nil
}

// lockInfo describes a lock as a directory. Its time is when the first of the holds that stand was acquired.
func lockInfo(s lock.Status) fs.FileInfo {
	first := slices.MinFunc(s.Holds, func(a, b lock.Hold) int { return a.Acquired.Wall.Compare(b.Acquired.Wall) })
	return virtual{s.Name.Base(), 0, fs.ModeDir | 0o755, first.Acquired.Wall, s.Holds[0].Owner.Account}
}

// virtual describes what is not on the disk: a lock, the status file.
type virtual struct {
	name     string
	size     int64
	mode     fs.FileMode
	modified time.Time
	owner    string // the holder's account for a lock
}

func (v virtual) Name() string       { return v.name }
func (v virtual) Size() int64        { return v.size }
func (v virtual) Mode() fs.FileMode  { return v.mode }
func (v virtual) ModTime() time.Time { return v.modified }
func (v virtual) IsDir() bool        { return v.mode.IsDir() }
func (v virtual) Sys() any           { return nil }

// isMade reports whether info describes what is not on the disk.
func isMade(info fs.FileInfo) bool {
	_, made := info.(virtual)
	return made
}

// ownerOf is the account of a lock's holder; "" for everything else.
func ownerOf(info fs.FileInfo) string {
	v, _ := info.(virtual)
	return v.owner
}

// isNotThere reports whether an error says that nothing has the name.
func isNotThere(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// abs is the path that a parameter means, as the account sees it.
func (c *client) abs(param string) string {
	if strings.HasPrefix(param, "/") {
		return path.Clean(param)
	}
	return path.Join(c.context.Path(), param)
}
