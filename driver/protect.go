package driver

import (
	"errors"
	"slices"

	"github.com/spf13/afero"

	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/lock"
)

var (
	errProtectedBelow = &refusal{text: "there are protected files below it, or would be"}
	errTooMuchBelow   = &refusal{text: "there is too much below it to look for protected files"}
	errHardLinks      = &refusal{text: "has other names (hard links), which may be protected"}
)

// maxBelow is how many entries below a directory are looked at before it is renamed.
const maxBelow = 4_000

// mayChange is the check in front of every command that changes paths, before it does anything slow. The first change of a job acquires
// the automatic lock of the paths, perhaps after it has waited; no other job's lock may keep the session from the change. The title is
// that for the last path. The change itself repeats the check of the locks in the same step, see changing.
func (c *client) mayChange(cmd *control.Command, paths ...lock.Name) (title lock.Title, err error) {
	for _, n := range paths {
		if err := c.takeAutomatic(cmd, n); err != nil {
			return lock.Title{}, err
		}
		if title, err = c.mayWrite(n); err != nil {
			return lock.Title{}, err
		}
	}
	return title, nil
}

// mayWrite returns the title under which the session may change a path now, or the refusal.
func (c *client) mayWrite(n lock.Name) (lock.Title, error) {
	if !c.locks.Concerned(n) {
		return lock.Title{}, nil
	}
	t, err := c.locks.MayWrite(n)
	return t, c.shown(err)
}

// shown words the refusal of a protected path for the client: it names the lock as the account sees it.
func (c *client) shown(err error) error {
	var p *lock.ProtectedError
	if !errors.As(err, &p) {
		return err
	}
	text := "protected by a lock outside of what this account sees"
	if view, ok := c.account.inView(p.Lock); ok {
		text = p.Text(view)
	}
	return &refusal{text: text, cause: "protected", wraps: p}
}

// changing makes a change of the paths in one step with the check that the session may make it. No directory above the paths is renamed
// meanwhile. change gets the titles in the order of the paths.
func (c *client) changing(paths []lock.Name, change func([]lock.Title) error) error {
	if !slices.ContainsFunc(paths, c.locks.Concerned) {
		return change(make([]lock.Title, len(paths)))
	}
	writes := make([]lock.Write, len(paths))
	for i, n := range paths {
		writes[i].Path = n
	}
	return c.shown(c.locks.Write(c.server.context, writes, func(titles []lock.Title) error {
		c.server.layout.RLock()
		defer c.server.layout.RUnlock()
		for _, n := range paths {
			if err := c.unmoved(n); err != nil {
				return err
			}
		}
		if err := c.mayStill(titles); err != nil {
			return err
		}
		return change(titles)
	}))
}

// mayStill returns an error if this server may no longer change what locks protect, since another server may soon grant the locks. Call it
// right before a change, behind the steps that a network file system can delay. Paths without a lock need no such check.
func (c *client) mayStill(titles []lock.Title) error {
	for _, t := range titles {
		if t.Lock != "" || t.Around != "" {
			return c.table().Valid()
		}
	}
	return nil
}

// unmoved returns an error if the path has become another file's, since a directory in it was replaced by a link.
func (c *client) unmoved(n lock.Name) error {
	again, err := c.server.resolve(n)
	if err == nil && again != n {
		return errMovedLink
	}
	return err
}

// protectedBelow refuses to rename a directory if a path below its old or its new name is protected. The caller holds Server.layout, so that
// nothing below changes meanwhile.
func (c *client) protectedBelow(from, to lock.Name) error {
	rules := c.table().Rules()
	if !rules.ProtectsBelow(from) && !rules.ProtectsBelow(to) {
		return nil
	}
	if tree := rules.AutomaticTree(from); tree != "" && tree == rules.AutomaticTree(to) { // the job holds it
		return nil
	}
	left := maxBelow
	return c.walkProtected(rules, from, to, &left)
}

func (c *client) walkProtected(rules *lock.Rules, from, to lock.Name, left *int) error {
	infos, err := afero.ReadDir(c.server.tree, string(from))
	if err != nil {
		return err
	}
	for _, info := range infos {
		if *left--; *left < 0 {
			return errTooMuchBelow
		}
		was, will := from+"/"+lock.Name(info.Name()), to+"/"+lock.Name(info.Name())
		for _, n := range []lock.Name{was, will} {
			if guards, err := rules.Guards(n); err != nil || len(guards) > 0 {
				return errProtectedBelow
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

// alter is changing for one path, and records the change in the history.
func (c *client) alter(n lock.Name, what string, change func(files.Check) error) error {
	return c.changing([]lock.Name{n}, func(titles []lock.Title) error {
		err := change(func() error { return c.mayStill(titles) })
		if err == nil {
			c.server.publishedAs(titles[0], what, lock.Publication{Path: n})
		}
		return err
	})
}

// publishedAs records a change of a file that a lock protects in the history. note is the change; "" stands for an upload. The change is made
// already, so an error is only logged.
func (s *Server) publishedAs(t lock.Title, note string, p lock.Publication) {
	if t.Lock == "" {
		return
	}
	log := s.log.With("lock", string(t.Lock), "holder", t.Owner.String(), "token", t.Token, "path", string(p.Path))
	if note != "" {
		log.Info("protected file changed", "change", note)
	}
	if err := s.table.Published(s.context, lock.Hold{Name: t.Lock, Token: t.Token, Owner: t.Owner}, t.Owner, note, p); err != nil {
		log.Error("a publication is not in the history", "err", err)
	}
}
