package driver

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/ftplockd/ftplockd/files"
	"github.com/ftplockd/ftplockd/lock"
)

var (
	errProtectedBelow = &refusal{text: "there are protected files below it, or would be", is: fs.ErrPermission}
	errTooMuchBelow   = &refusal{text: "there is too much below it to look for protected files", is: fs.ErrPermission}
	errHardLinks      = &refusal{text: "has other names (hard links), which may be protected", is: fs.ErrPermission}
	errBorder         = &refusal{text: "cannot be renamed into or out of what a lock with commit = release protects", is: fs.ErrPermission}
	errStagedWhole    = &refusal{text: "only files are prepared under a lock with commit = release", is: fs.ErrPermission}
)

// maxBelow is how many entries below a directory are looked at before it is renamed.
const maxBelow = 4_000

// protects reports whether locks protect anything at all. Without, nothing here costs anything.
func (c *client) protects() bool { return c.table().Rules().Protects() }

// mayWrite is the check that a change begins with.
func (c *client) mayWrite(n lock.Name) (lock.Title, error) {
	if !c.protects() {
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
		return &refusal{text: p.Text(view), is: fs.ErrPermission}
	}
	return &refusal{text: "protected by a lock outside of what this account sees", is: fs.ErrPermission}
}

// changing makes a change of the paths in one step with the check that the session may make it, and while no directory
// above them is renamed. The titles come in the order of the paths.
func (c *client) changing(ctx context.Context, paths []lock.Name, change func([]lock.Title) error) error {
	if !c.protects() {
		return change(make([]lock.Title, len(paths)))
	}
	writes := make([]lock.Write, len(paths))
	for i, n := range paths {
		writes[i].Path = n
	}
	return c.shown(c.locks.Write(ctx, writes, func(titles []lock.Title) error {
		c.server.layout.RLock()
		defer c.server.layout.RUnlock()
		for _, n := range paths {
			if err := c.unmoved(n); err != nil {
				return err
			}
		}
		if err := c.server.stages.ready(titles); err != nil {
			return err
		}
		return change(titles)
	}))
}

// unmoved returns ErrConflict if the name does not stand for itself any more, since a link was put in its way.
func (c *client) unmoved(n lock.Name) error {
	again, err := c.tree().Resolve(string(n))
	if err == nil && again != string(n) {
		return lock.ErrConflict
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
	if c.server.stages.below(from) {
		return errProtectedBelow
	}
	left := maxBelow
	return c.walkProtected(rules, from, to, &left)
}

func (c *client) walkProtected(rules *lock.Rules, from, to lock.Name, left *int) error {
	infos, err := c.tree().ReadDir(string(from))
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

// rename is what RNTO does to the tree. A directory, or a link that may lead to one, moves while nobody is in the
// middle of a change. prepared says that it is only to be done when a lock is released.
func (c *client) rename(ctx context.Context, from, to lock.Name, info fs.FileInfo) (prepared bool, err error) {
	apply := func() error { return c.tree().Rename(string(from), string(to)) }
	if !c.protects() {
		return false, apply()
	}
	writes := []lock.Write{{Path: from}, {Path: to}}
	if info.Mode().IsRegular() {
		err = c.changing(ctx, []lock.Name{from, to}, func(titles []lock.Title) (err error) {
			prepared, err = c.renameFile(from, to, titles, apply)
			return err
		})
		return prepared, err
	}
	return false, c.shown(c.locks.Write(ctx, writes, func(titles []lock.Title) error {
		for _, t := range titles {
			if t.Commit == lock.CommitRelease {
				return errStagedWhole
			}
		}
		c.server.layout.Lock()
		defer c.server.layout.Unlock()
		if err := errors.Join(c.unmoved(from), c.unmoved(to)); err != nil {
			return err
		}
		if info.IsDir() {
			if err := c.protectedBelow(from, to); err != nil {
				return err
			}
		}
		return apply()
	}))
}

func (c *client) renameFile(from, to lock.Name, titles []lock.Title, apply func() error) (prepared bool, err error) {
	was, will := titles[0], titles[1]
	if was.Commit == lock.CommitRelease || will.Commit == lock.CommitRelease {
		if was.Lock != will.Lock {
			return false, errBorder
		}
		return true, c.stageRename(from, to, was)
	}
	if err := apply(); err != nil {
		return false, err
	}
	c.published(was, from, "renamed to "+string(to))
	c.published(will, to, "renamed from "+string(from))
	return false, nil
}

// published has it written down that a protected path was changed otherwise than by an upload.
func (c *client) published(t lock.Title, n lock.Name, note string) {
	c.server.publishedAs(t, lock.Publication{File: n, Note: note})
}

// publishedAs writes a publication down, in the journal and in the log. The file is published, so an error is logged.
func (s *Server) publishedAs(t lock.Title, p lock.Publication) {
	if t.Lock == "" {
		return
	}
	p.Lock, p.Token, p.By = t.Lock, t.Token, t.Owner
	log := s.log.With("lock", string(p.Lock), "token", p.Token, "holder", p.By.String(), "file", string(p.File))
	log.Info("published", "bytes", p.Bytes, "sha256", p.SHA256, "note", p.Note)
	if s.publications == nil {
		return
	}
	if err := s.publications.Published(s.context, p); err != nil {
		log.Error("a publication is not in the journal", "err", err)
	}
}

// protectedUpload is an upload to a name that locks may protect by the time when it is published.
type protectedUpload struct {
	*files.Upload
	client *client
	began  lock.Title
	size   int64
	sum    string // SHA-256; "": not protected when the upload was complete
}

// Sync is the slow part: the digest of what a lock protects, too.
func (p *protectedUpload) Sync() error {
	if err := p.Upload.Sync(); err != nil || p.began.Lock == "" {
		return err
	}
	var err error
	p.size, p.sum, err = p.Upload.Sum()
	return err
}

// Publish gives the file its name while the hold stands under which the upload began.
func (p *protectedUpload) Publish() error {
	c := p.client
	if !c.protects() {
		return p.Upload.Publish()
	}
	for {
		n := lock.Name(p.Upload.Name())
		write := lock.Write{Path: n, Begun: true, Title: p.began}
		err := c.locks.Write(c.session.context(), []lock.Write{write}, func(titles []lock.Title) error {
			c.server.layout.RLock()
			defer c.server.layout.RUnlock()
			if lock.Name(p.Upload.Name()) != n {
				return errRenamed
			}
			if err := p.Upload.InPlace(); err != nil {
				return err
			}
			return p.publish(n, titles)
		})
		if err != errRenamed {
			return c.shown(err)
		}
	}
}

// errRenamed says that a directory above an upload was renamed since its name was looked at.
var errRenamed = errors.New("renamed meanwhile")

func (p *protectedUpload) publish(n lock.Name, titles []lock.Title) error {
	s := p.client.server
	if err := s.stages.ready(titles); err != nil {
		return err
	}
	title := titles[0]
	if title.Commit == lock.CommitRelease {
		return s.stages.put(title, &version{path: n, upload: p.Upload, size: p.size, sum: p.sum})
	}
	err := p.Upload.Publish()
	if err == nil || errors.Is(err, files.ErrNotDurable) {
		s.publishedAs(title, lock.Publication{File: n, Bytes: p.size, SHA256: p.sum})
	}
	return err
}

// changeProtected gives a file another time or mode, as its holder if a lock protects it.
func (c *client) changeProtected(ctx context.Context, n lock.Name, info fs.FileInfo, apply func(changeable) error) error {
	return c.changing(ctx, []lock.Name{n}, func(titles []lock.Title) error {
		title := titles[0]
		if title.Commit == lock.CommitRelease {
			return c.stageChange(n, info, title, apply)
		}
		if c.protects() && !info.IsDir() && links(info) > 1 {
			return errHardLinks
		}
		if err := apply(treeFile{c.tree(), string(n)}); err != nil {
			return err
		}
		c.published(title, n, "time or mode set")
		return nil
	})
}

// changeable is what can be given another time or mode: a file of the tree, or one that is prepared under a lock.
type changeable interface {
	Chtimes(atime, mtime time.Time) error
	Chmod(mode fs.FileMode) error
}

var _ changeable = (*files.Upload)(nil)

// treeFile is a file or directory of the tree.
type treeFile struct {
	tree *files.Tree
	name string
}

func (f treeFile) Chtimes(atime, mtime time.Time) error { return f.tree.Chtimes(f.name, atime, mtime) }
func (f treeFile) Chmod(mode fs.FileMode) error         { return f.tree.Chmod(f.name, mode) }
