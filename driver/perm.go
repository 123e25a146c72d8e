package driver

import (
	"io/fs"
	"path"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// permFact returns the perm fact of n (RFC 3659 section 7.5.5): the commands that the session may use on it now. It does not read
// directories, so RMD of one that is not empty, and RNTO of one with protected files in it, may still be refused.
func (c *client) permFact(n lock.Name, info fs.FileInfo) string {
	if info.IsDir() {
		return c.permOfDirectory(n)
	}
	var s string
	switch {
	case isMade(info): // the status file
	case !c.account.Write || !c.writes(n):
	case info.Mode().IsRegular(), info.Mode()&fs.ModeSymlink != 0:
		s = "adfw"
	default:
		s = "df"
	}
	if c.account.Read && info.Mode().IsRegular() {
		s += "r"
	}
	return s
}

func (c *client) permOfDirectory(n lock.Name) string {
	isLock := c.isLock(n)
	fills := c.account.Write && c.writes(lock.Name(path.Join(string(n), "x")))
	moves := !isLock && c.account.Write && c.stays(n) == nil && !c.table().HeldWithin(n) && c.writes(n)
	removes, enters := moves, true
	if isLock {
		_, err := c.locks.SpeaksFor(n)
		removes, enters = err == nil, c.enterLock(n) == nil
	}
	var s []byte
	for _, may := range []struct {
		what byte
		is   bool
	}{{'c', fills}, {'d', removes}, {'e', enters}, {'f', moves}, {'l', true}, {'m', fills}, {'p', fills}} {
		if may.is {
			s = append(s, may.what)
		}
	}
	return string(s)
}

// writes reports whether no lock keeps the session from changing n. A job acquires an automatic lock with its first change.
func (c *client) writes(n lock.Name) bool {
	if c.table().Rules().Automatic(n) != "" {
		return true
	}
	_, err := c.mayWrite(n)
	return err == nil
}

// subject returns the name that stat has described: for a link to a directory that of the directory.
func (c *client) subject(view string, info fs.FileInfo) (lock.Name, error) {
	if info.IsDir() {
		return c.follow(view)
	}
	return c.resolve(view)
}
