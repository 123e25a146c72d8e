package driver

import (
	"cmp"
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// statFor is Stat for a command: it returns the fs.FileInfo and the reply that the command needs.
func (c *client) statFor(cmd *control.Command, view string) (info fs.FileInfo, r control.Reply, err error) {
	switch {
	case cmd.Is("CWD", "XCWD", "CDUP", "XCUP"):
		info, err = c.checkCwd(view)
		return info, done(250, view, "is the current directory"), err
	case cmd.Is("RNFR"):
		c.renaming = ""
		if _, info, err = c.prepareMove(view); err == nil {
			c.renaming = view
		}
		return info, done(350, view, "ready for RNTO"), err
	case cmd.Is("STAT"):
		r, err = c.statListing(cmd.Param)
		return virtual{}, r, err // the library needs a FileInfo, though the reply is complete
	case cmd.Is("SIZE", "MDTM", "MLST"):
		c.look(cmd, view)
	}
	if info, err = c.stat(view); err != nil {
		return nil, r, err
	}
	switch {
	case cmd.Is("SIZE"): // RFC 3659 section 4. In ASCII type, too, it is the size on disk, as in vsftpd
		r, err = sizeOf(info)
	case cmd.Is("MDTM"): // RFC 3659 section 3. The time of a lock is that of its grant
		r = modifiedAt(info)
	case cmd.Is("MLST"): // RFC 3659 section 7
		r = control.Reply{Code: 250, Text: "facts of " + view, Lines: []string{" " + c.formatFacts(entry{view, info})}}
	}
	return info, r, err
}

func modifiedAt(info fs.FileInfo) control.Reply {
	return control.Reply{Code: 213, Text: info.ModTime().UTC().Format(timeValue)}
}

func sizeOf(info fs.FileInfo) (control.Reply, error) {
	_, isVirtual := info.(virtual)
	switch {
	case info.IsDir():
		return control.Reply{}, errIsDir
	case isVirtual: // a client that compares the size with the bytes of RETR would report a truncated file
		return control.Reply{}, errChanging
	case !info.Mode().IsRegular():
		return control.Reply{}, files.ErrNotRegular
	}
	return control.Reply{Code: 213, Text: strconv.FormatInt(info.Size(), 10)}, nil
}

// lstat describes the lock or the file with a name. The modification time of a lock is the time of its grant.
func (c *client) lstat(n lock.Name) (fs.FileInfo, error) {
	if s, held := c.table().Get(n); held && !s.Holds[0].Job {
		oldest := s.Holds[0]
		return virtual{n.Base(), 0, fs.ModeDir | 0o755, oldest.Acquired.Wall, oldest.Owner.Account}, nil
	}
	return c.server.tree.Lstat(string(n))
}

// stat is lstat of a path. It follows a link at the end.
func (c *client) stat(view string) (fs.FileInfo, error) {
	if c.isStatus(view) {
		return c.server.statusInfo(c.account.Home), nil
	}
	n, err := c.resolve(view)
	if err != nil {
		return nil, err
	}
	info, err := c.lstat(n)
	if err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return info, err
	}
	if n, err = c.follow(view); err != nil {
		return nil, err
	}
	return c.lstat(n)
}

// link describes a symbolic link that a listing shows as such.
type link struct {
	fs.FileInfo
	target string // as the client sees it; "": the client may not see it
}

// statEntry is stat for a listing, where a link to a directory, or to nothing, is a link: programs that remove a directory with its content
// would remove the content of the target. A link to a file has the description of the file: DELE removes the link, and the size is that of RETR.
func (c *client) statEntry(view string) (fs.FileInfo, error) {
	info, err := c.stat(view)
	if err == nil && !info.IsDir() {
		return info, nil
	}
	n, resolveErr := c.resolve(view)
	if resolveErr != nil {
		return info, err
	}
	own, lstatErr := c.lstat(n)
	if lstatErr != nil || own.Mode()&fs.ModeSymlink == 0 {
		return info, err
	}
	target, _ := c.server.tree.Readlink(string(n)) // without its target it still is a link
	return link{own, visibleTarget(view, target)}, nil
}

// visibleTarget returns the target of a link, or "" if it is absolute or leads above the root of the account, because that is a path of the host.
func visibleTarget(view, target string) string {
	from := path.Join(strings.TrimPrefix(path.Dir(view), "/"), target) // begins with ".." if it leads above the root
	if path.IsAbs(target) || filepath.IsAbs(target) || from == ".." || strings.HasPrefix(from, "../") || strings.ContainsAny(target, "\r\n") {
		return ""
	}
	return target
}

// checkCwd is CWD: it returns the FileInfo of a directory that may become the working directory. Unless the rule allows more, only
// a session that acts for the holder of a lock may CWD into the lock: others could mistake it for an ordinary directory.
func (c *client) checkCwd(view string) (fs.FileInfo, error) {
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
	}
	isLock, host, err := c.actsAsLock(n)
	if err != nil || !isLock {
		return info, err
	}
	if rule, ok := c.table().Rules().For(n); ok && rule.AllowCwd {
		return info, nil
	}
	if !c.table().Held(n) {
		return info, cmp.Or(host, error(errNotHolder))
	}
	if _, err := c.locks.ActsFor(n); err != nil {
		return nil, err
	}
	return info, nil
}

// virtual describes a file that is not on disk: a lock, the status file.
type virtual struct {
	name     string
	size     int64
	mode     fs.FileMode
	modified time.Time
	owner    string // of a lock: the account of its holder
}

func (v virtual) Name() string       { return v.name }
func (v virtual) Size() int64        { return v.size }
func (v virtual) Mode() fs.FileMode  { return v.mode }
func (v virtual) ModTime() time.Time { return v.modified }
func (v virtual) IsDir() bool        { return v.mode.IsDir() }
func (v virtual) Sys() any           { return nil }

// isNotThere reports whether err means that no file has the name.
func isNotThere(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// abs returns the absolute path of a parameter, as the account sees it.
func (c *client) abs(param string) string {
	if strings.HasPrefix(param, "/") {
		return path.Clean(param)
	}
	return path.Join(c.libraryClient.Path(), param)
}
