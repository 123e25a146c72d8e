package driver

import (
	"errors"
	"io/fs"
	"slices"

	"github.com/spf13/afero"

	"github.com/ftplockd/ftplockd/internal/lock"
)

var (
	errProtectedBelow = &refusal{text: "there are protected files below it, or would be", is: fs.ErrPermission}
	errTooMuchBelow   = &refusal{text: "there is too much below it to look for protected files", is: fs.ErrPermission}
	errHardLinks      = &refusal{text: "has other names (hard links), which may be protected", is: fs.ErrPermission}
)

// maxBelow is how many entries below a directory are looked at before it is renamed.
const maxBelow = 4_000

// mayWrite is the check that a change begins with.
func (c *client) mayWrite(n lock.Name) (lock.Title, error) {
	if !c.locks.Concerned(n) {
		return lock.Title{}, nil
	}
	t, err := c.locks.MayWrite(n)
	return t, c.shown(err)
}

// shown puts the refusal of a protected path into words for the client: with the lock's name as the account knows it.
func (c *client) shown(err error) error {
	var p *lock.ProtectedError
	if !errors.As(err, &p) {
		return err
	}
	if view, ok := c.account.inView(p.Lock); ok {
		return &refusal{text: p.Text(view), cause: "protected", is: fs.ErrPermission, protected: p}
	}
	return &refusal{text: "protected by a lock outside of what this account sees", cause: "protected", is: fs.ErrPermission, protected: p}
}

// changing makes a change of the paths in one step with the check that the session may make it, and while no directory
// above them is renamed. The titles come in the order of the paths.
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

// mayStill asks right before a change, after what is slow with a network file system, whether this server may still make it: when it
// may not, another one may soon give the locks to others. What no lock protects is promised nothing.
func (c *client) mayStill(titles []lock.Title) error {
	for _, t := range titles {
		if t.Lock != "" || t.Around != "" {
			return c.table().Valid()
		}
	}
	return nil
}

// unmoved returns an error if the name does not stand for itself any more, since a link was put in its way.
func (c *client) unmoved(n lock.Name) error {
	again, err := c.server.resolve(n)
	if err == nil && again != n {
		return errMovedLink
	}
	return err
}

// protectedBelow refuses to rename a directory if that would take a protected file away, or bring one. The caller keeps
// others from changing what lies below.
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

// alter is changing for one path, and has it written down what was done.
func (c *client) alter(n lock.Name, what string, change func() error) error {
	return c.changing([]lock.Name{n}, func(titles []lock.Title) error {
		err := change()
		if err == nil {
			c.server.publishedAs(titles[0], what, lock.Publication{Path: n})
		}
		return err
	})
}

// publishedAs records a change of a file that a lock protects in the history; note is what was done, if it was no upload. The file is
// published, so an error is only logged.
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
