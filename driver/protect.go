package driver

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"strings"

	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/lock"
)

var (
	errProtectedBelow = &refusal{text: "there are protected files below it, or would be"}
	errTooMuchBelow   = &refusal{text: "there is too much below it to look for protected files"}
	errHardLinks      = &refusal{text: "has other names (hard links), which may be protected"}
)

// prepareChange is the check at the beginning of every command that changes a path. It returns the session's permit for the path, or an error if
// another job or the host holds a lock of the path. The first change of a job acquires the automatic lock of the path, perhaps after a
// wait. withPermits repeats the check of MayMake, but not that of checkHostLocks, in one step with the change.
func (c *client) prepareChange(cmd *control.Command, n lock.Name) (lock.Permit, error) {
	if err := c.checkHostLocks(n); err != nil {
		return lock.Permit{}, c.protectedRefusal(err)
	}
	if err := c.takeAutomatic(cmd, n); err != nil {
		return lock.Permit{}, err
	}
	permit, err := c.locks.MayMake(c.server.context, c.writeFor(n))
	return permit, c.protectedRefusal(err)
}

// protectedRefusal returns the refusal of a protected path for the client. Its text contains the path of the lock as the account sees it.
func (c *client) protectedRefusal(err error) error {
	var p *lock.ProtectedError
	if !errors.As(err, &p) {
		return err
	}
	text := "protected by a lock outside of what this account sees"
	if view, ok := inView(c.account.Home, p.Lock); ok {
		text = p.Text(view)
	}
	return &refusal{text: text, cause: "protected", wraps: p}
}

// withPermits calls change in one step with the check that the session may change the paths of the writes. change gets the permits in the
// order of the writes. No client renames a directory above the paths meanwhile; checkParents returns an error if one was renamed before.
func (c *client) withPermits(writes []lock.Write, checkParents func() error, change func([]lock.Permit) error) error {
	return c.protectedRefusal(c.locks.Write(c.server.context, writes, func(permits []lock.Permit) error {
		if permits == nil { // no rule protects any path, so no rename of a directory matters
			return change(make([]lock.Permit, len(writes)))
		}
		c.server.layout.RLock()
		defer c.server.layout.RUnlock()
		if err := checkParents(); err != nil {
			return err
		}
		if err := c.checkPermits(permits); err != nil {
			return err
		}
		return change(permits)
	}))
}

// checkPermits returns an error if one of the permits is for a lock and this server may no longer change protected files, because another
// server may soon grant the locks. Call it right before a change, after the steps that a network file system can delay.
func (c *client) checkPermits(permits []lock.Permit) error {
	for _, permit := range permits {
		if permit.Lock != "" || permit.Around != "" {
			return c.table().Valid()
		}
	}
	return nil
}

// checkUnmoved returns an error if one of the paths now leads elsewhere, because a link has replaced a directory in it.
func (c *client) checkUnmoved(paths ...lock.Name) error {
	for _, n := range paths {
		again, err := c.server.resolve(n)
		switch {
		case err != nil:
			return err
		case again != n:
			return errMovedLink
		}
	}
	return nil
}

// checkSameKind returns an error if a file, directory or link has been replaced by one of another kind since it was described as was: the
// checks of the command may then not suffice. Call it in the step of the change.
func (c *client) checkSameKind(n lock.Name, was fs.FileInfo) error {
	info, err := c.server.tree.Lstat(string(n))
	if err == nil && info.Mode().Type() != was.Mode().Type() {
		err = errReplaced
	}
	return err
}

// protectedBelow returns an error for the rename of a directory if a path below its old or its new name is protected. While the caller holds
// Server.layout, nothing below changes.
func (c *client) protectedBelow(from, to lock.Name) error {
	rules := c.table().Rules()
	if !rules.ProtectsBelow(from) && !rules.ProtectsBelow(to) {
		return nil
	}
	if tree := rules.AutomaticTree(from); tree != "" && tree == rules.AutomaticTree(to) { // the job holds it
		return nil
	}
	left := c.server.bounds.below
	return c.walkProtected(rules, from, to, &left)
}

func (c *client) walkProtected(rules *lock.Rules, from, to lock.Name, left *int) error {
	infos, err := c.readAtMost(from, *left)
	if err != nil {
		return err
	}
	*left -= len(infos)
	for _, info := range infos {
		was, will := from+"/"+lock.Name(info.Name()), to+"/"+lock.Name(info.Name())
		for _, n := range []lock.Name{was, will} {
			if guards, err := rules.Guards(n); err != nil || len(guards) > 0 {
				return errProtectedBelow
			}
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			if err := c.checkLinkPlace(was, will); err != nil {
				return err
			}
		}
		if !info.IsDir() {
			continue
		}
		if err := c.walkProtected(rules, was, will, left); err != nil {
			return err
		}
	}
	return nil
}

// checkLinkPlace returns an error for the rename of a link to a directory, if a path below its new name may be protected. The server checks
// a path through a link at its target, so the locks that protect the new name would not apply.
func (c *client) checkLinkPlace(from, to lock.Name) error {
	rules := c.table().Rules()
	if !rules.ProtectsThroughLink(to) {
		return nil
	}
	if tree := rules.AutomaticTree(from); tree != "" && tree == rules.AutomaticTree(to) { // the job holds it
		return nil
	}
	if info, err := c.server.tree.Stat(string(from)); err == nil && !info.IsDir() {
		return nil
	}
	return errProtectedBelow // a target that does not exist may become a directory
}

// readAtMost reads a directory, and returns errTooMuchBelow if it has more than most entries.
func (c *client) readAtMost(n lock.Name, most int) (all []fs.FileInfo, err error) {
	dir, err := c.server.tree.Open(string(n))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	for len(all) <= most {
		infos, err := dir.Readdir(most + 1 - len(all))
		all = append(all, infos...)
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, errTooMuchBelow
}

// changeAndRecord is withPermits for one path, and records the change in the history.
func (c *client) changeAndRecord(n lock.Name, what string, change func(files.Check) error) error {
	return c.withPermits([]lock.Write{c.writeFor(n)}, func() error { return c.checkUnmoved(n) }, func(permits []lock.Permit) error {
		err := change(func() error { return c.checkPermits(permits) })
		if err == nil {
			c.recordChange(permits[0], what, lock.Publication{Path: n})
		}
		return err
	})
}

// recordChange counts a change for automatic locks. If a lock protects the file, it records the change in the history. note names the change;
// "" is an upload. Call it in the function that withPermits calls.
func (c *client) recordChange(permit lock.Permit, note string, p lock.Publication) {
	c.jobs.Published(p.Path, permit.Token, note != lock.NoteAttributes && !strings.HasPrefix(note, lock.NoteRenamed))
	if permit.Lock == "" {
		return
	}
	s := c.server
	if note != "" {
		s.publicationLog(permit, p).Info("protected file changed", "change", note)
	}
	s.table.Publish(lock.Hold{Name: permit.Lock, Token: permit.Token, Owner: permit.Owner}, permit.Owner, note, p)
}

// recordUnconfirmed records in the history that a published upload may be a part of the file. It logs an error and does not return it, because
// the file is published.
func (s *Server) recordUnconfirmed(permit lock.Permit, p lock.Publication) {
	if permit.Lock == "" {
		return
	}
	log := s.publicationLog(permit, p)
	log.Info("protected file changed", "change", lock.NoteUnconfirmed)
	if err := s.table.Published(context.WithoutCancel(s.context), lock.Hold{Name: permit.Lock, Token: permit.Token, Owner: permit.Owner}, permit.Owner, lock.NoteUnconfirmed, p); err != nil {
		log.Error("a publication is not in the history", "err", err)
	}
}

// publicationLog returns the log with the lock and path of a publication.
func (s *Server) publicationLog(permit lock.Permit, p lock.Publication) *slog.Logger {
	return s.log.With("lock", string(permit.Lock), "holder", permit.Owner.String(), "token", permit.Token, "path", string(p.Path))
}
