package driver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/ftplockd/ftplockd/files"
	"github.com/ftplockd/ftplockd/lock"
)

// stageRemoval prepares the removal of a file.
func (c *client) stageRemoval(n lock.Name, title lock.Title) error {
	return c.server.stages.put(title, &version{path: n, note: "removed"})
}

// stageRename prepares the renaming of a file that may itself be prepared only.
func (c *client) stageRename(from, to lock.Name, title lock.Title) error {
	if from == to {
		return nil
	}
	v := &version{path: to, note: "renamed from " + string(from)}
	if was, ok := c.seen(from); ok {
		v.upload, v.size, v.sum = was.upload, was.size, was.sum
	} else {
		up, err := c.tree().Link(string(from), string(to))
		if err != nil {
			return err
		}
		if v.size, v.sum, err = up.Sum(); err != nil {
			return errors.Join(err, up.Discard())
		}
		v.upload = up
	}
	if v.upload == nil {
		return fs.ErrNotExist
	}
	return c.server.stages.put(title, v, &version{path: from, note: "renamed to " + string(to)})
}

// stageChange prepares a copy of a file with another time or mode.
func (c *client) stageChange(n lock.Name, info fs.FileInfo, title lock.Title, apply func(changeable) error) error {
	if !info.Mode().IsRegular() {
		return errStagedWhole
	}
	up, err := c.tree().Upload(string(n), files.UploadOptions{Append: true, Old: c.old(n)})
	if err != nil {
		return err
	}
	v := &version{path: n, upload: up, note: "time or mode set"}
	err = up.Sync()
	if err == nil {
		err = errors.Join(up.Chmod(info.Mode()), up.Chtimes(info.ModTime(), info.ModTime()), apply(up))
	}
	if err == nil {
		v.size, v.sum, err = up.Sum()
	}
	if err == nil {
		err = c.server.stages.put(title, v)
	}
	if err != nil {
		return errors.Join(err, up.Discard())
	}
	return nil
}

// lostToARestart reports, once for each hold, that the lock was taken before the server was started: what had been prepared
// under it then is gone, and a plain 250 would say that it was published.
func (c *client) lostToARestart(n lock.Name) bool {
	if c.table().Rules().CommitOf(n) != lock.CommitRelease {
		return false
	}
	h, err := c.locks.SpeaksFor(n)
	if err != nil || h.Owner.Session>>32 == c.locks.ID()>>32 {
		return false
	}
	_, told := c.server.restarted.LoadOrStore(h.Token, struct{}{})
	return !told
}

var errRestarted = &refusal{
	code: 451,
	text: "the server was started anew since the lock was taken, and what was changed before that is not published; RMD again gives the lock back",
	is:   fs.ErrInvalid,
}

// release gives a lock back. What its holder has prepared is published first, all of it or nothing, and if that
// fails the lock is kept.
func (c *client) release(ctx context.Context, n lock.Name) (again int, w *lock.Waiting, err error) {
	if c.server.stages.count.Load() == 0 && c.table().Rules().CommitOf(n) != lock.CommitRelease {
		return c.locks.ReleaseOrWait(ctx, n, c.session.conn.Wake) // nothing is or can be prepared
	}
	if c.lostToARestart(n) {
		return 0, nil, errRestarted
	}
	return c.locks.ReleaseAfterOrWait(ctx, n, c.session.conn.Wake, func(e *lock.Ending) error {
		err := c.commit(ctx, n, e)
		if err == nil {
			return nil
		}
		c.server.log.Error("a lock's changes were not published at its release", "lock", string(n), "err", err)
		if errors.Is(err, files.ErrUnfinished) {
			return &refusal{code: 451, text: "published, but not all of it is in place yet: try again; the lock is kept"}
		}
		_, text := describe(c.shown(err))
		return &refusal{code: 451, text: "nothing is published, and the lock is kept: " + text}
	})
}

// commit publishes what the hold has prepared.
func (c *client) commit(ctx context.Context, n lock.Name, e *lock.Ending) error {
	s, hold := c.server, e.Hold()
	if s.stages.unfinished.Load() {
		if err := s.finishPublications(); err != nil {
			return err
		}
	}
	versions, recorded := s.stages.of(hold.Token)
	title := lock.Title{Lock: n, Token: hold.Token, Owner: hold.Owner, Commit: lock.CommitRelease}
	if len(versions) == 0 {
		return nil
	}
	if recorded { // and finished by now
		return s.stages.drop(hold.Token)
	}
	writes := make([]lock.Write, len(versions))
	changes := make([]files.Change, len(versions))
	for i, v := range versions {
		writes[i] = lock.Write{Path: v.path, Begun: true, Title: title}
		changes[i] = files.Change{Name: string(v.path), Upload: v.upload, Bytes: v.size, SHA256: v.sum, Note: v.note}
	}
	return e.Write(ctx, writes, func([]lock.Title) error {
		err := s.tree.Commit(label(title), changes, &s.layout)
		if err != nil && !errors.Is(err, files.ErrUnfinished) && !errors.Is(err, files.ErrNotDurable) {
			return err
		}
		for _, change := range changes {
			s.publishedAs(title, publication(change))
		}
		if errors.Is(err, files.ErrUnfinished) {
			s.stages.record(hold.Token)
			return err
		}
		if err != nil {
			s.log.Error("published, but it may not survive a loss of power", "lock", string(n), "err", err)
		}
		return s.stages.drop(hold.Token)
	})
}

func publication(change files.Change) lock.Publication {
	return lock.Publication{File: lock.Name(change.Name), Bytes: change.Bytes, SHA256: change.SHA256, Note: change.Note}
}

// finishPublications does what is left of those that are recorded.
func (s *Server) finishPublications() error {
	if err := s.tree.Finish(&s.layout); err != nil {
		return err
	}
	s.stages.unfinished.Store(false)
	return nil
}

// sweepStages drops what was prepared under holds that have ended, and finishes what is recorded.
func (s *Server) sweepStages() error {
	var errs []error
	if s.stages.unfinished.Load() {
		errs = append(errs, s.finishPublications())
	}
	for _, t := range s.stages.ended(func(t lock.Title) bool { return s.table.Stands(t.Lock, t.Token) }) {
		s.log.Info("changes that were not published are dropped: their lock was not given back", "lock", string(t.Lock), "token", t.Token)
		errs = append(errs, s.stages.drop(t.Token))
	}
	return errors.Join(errs...)
}

// closeStages drops what was prepared under all holds: their locks may stand, their sessions do not.
func (s *Server) closeStages() error {
	var errs []error
	for _, t := range s.stages.ended(func(lock.Title) bool { return false }) {
		errs = append(errs, s.stages.drop(t.Token))
	}
	return errors.Join(errs...)
}

// label says in the record of a commit by which hold it is made.
func label(t lock.Title) string {
	return fmt.Sprintf("%q %d %q %q %q %d", string(t.Lock), t.Token, t.Owner.Account, t.Owner.Address, t.Owner.Nonce, t.Owner.Session)
}

func parseLabel(text string) (t lock.Title, err error) {
	var name string
	_, err = fmt.Fscanf(strings.NewReader(text), "%q %d %q %q %q %d", &name, &t.Token, &t.Owner.Account, &t.Owner.Address, &t.Owner.Nonce, &t.Owner.Session)
	t.Lock = lock.Name(name)
	return t, err
}

// tellRedone writes down what the start has published because a crash came in between.
func (s *Server) tellRedone() error {
	for _, r := range s.tree.Redone() {
		title, err := parseLabel(r.Label)
		if err != nil {
			return err
		}
		for _, change := range r.Changes {
			p := publication(change)
			p.Note = strings.TrimPrefix(p.Note+", done at the next start", ", ")
			s.publishedAs(title, p)
		}
		if err := r.Forget(); err != nil {
			return err
		}
	}
	return nil
}
