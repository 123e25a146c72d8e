package files

import (
	"errors"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// Change is one of the changes that a Commit makes.
type Change struct {
	Name   string  // the FTP path, without links in it
	Upload *Upload // what gets the name; nil: what has it is removed
	// What follows is kept with the record, for whoever asks what was redone.
	Bytes  int64
	SHA256 string
	Note   string
}

// Commit makes all the changes, or none. First it syncs a record of them, the point of no return; then it takes gate and
// makes them, so that whoever opens files under gate sees all or none; then, if the tree is durable, it
// makes them last. A crash between the record and the end is made good by the next Open. label is kept with the record.
//
// After an error nothing was changed and the uploads are as they were, unless it matches ErrUnfinished: then the record
// stands, and Finish, or the next Open, does the rest. With ErrNotDurable everything is in place. The uploads are over
// then, as after Publish.
//
// A name that is gone already is no error for a removal. A directory of that name is EISDIR.
func (t *Tree) Commit(label string, changes []Change, gate sync.Locker) error {
	t.life.RLock()
	defer t.life.RUnlock()
	if t.rootfd < 0 {
		return fail("commit", "/", errClosed)
	}
	c := &commit{tree: t, label: label, durable: t.settings().durable}
	defer c.release()
	for _, change := range changes {
		if err := c.add(change); err != nil {
			return fail("commit", change.Name, err)
		}
	}
	err := c.prepared()
	if err == nil {
		err = c.write()
	}
	if err != nil {
		return fail("commit", "/", err)
	}
	return t.perform(c, gate)
}

// Finish does what is left of Commits that returned ErrUnfinished, and returns that again if it cannot.
func (t *Tree) Finish(gate sync.Locker) error {
	t.life.RLock()
	defer t.life.RUnlock()
	if t.rootfd < 0 {
		return fail("commit", "/", errClosed)
	}
	for _, c := range t.commits.takeUnfinished() {
		err := t.perform(c, gate)
		c.release()
		if err != nil && !errors.Is(err, ErrNotDurable) {
			return err
		}
	}
	return nil
}

// perform makes the changes of a commit that is recorded.
func (t *Tree) perform(c *commit, gate sync.Locker) error {
	gate.Lock()
	name, err := c.apply()
	gate.Unlock()
	if err != nil {
		t.commits.keepUnfinished(c)
		return fail("commit", name, &marked{ErrUnfinished, bare(err)})
	}
	err = c.lasting()
	c.end(err == nil)
	if err != nil {
		return fail("commit", "/", &marked{ErrNotDurable, bare(err)})
	}
	return nil
}

// commit is changes on their way, and the record of them.
type commit struct {
	tree    *Tree
	label   string
	durable bool
	kept    bool // it is unfinished, and keeps what it has open
	steps   []*step
	record  commitRecord
}

// step is one change: a rename of a temporary, or a removal.
type step struct {
	change Change
	to     spot
	from   spot   // of a rename: where the temporary is
	inode  uint64 // of a removal: what is removed
	birth  int64
}

// spot is a name in a directory that is open.
type spot struct {
	fd    int
	path  string // the FTP path of the directory
	dev   uint64 // the directory itself
	inode uint64
	base  string
}

func (s *spot) close() {
	if s.fd >= 0 {
		unix.Close(s.fd)
	}
	s.fd = -1
}

// open finds the directory of a spot again that is known by its path and number alone.
func (s *spot) open(t *Tree, flags int) error {
	fd, err := t.sys.open(s.path, flags, 0)
	if err == unix.EACCES && flags != dirFlags {
		fd, err = t.sys.open(s.path, dirFlags, 0)
	}
	if err != nil {
		return err
	}
	i, err := t.sys.fstat(fd, "")
	if err == nil && (uint64(i.st.Dev) != s.dev || i.st.Ino != s.inode) {
		err = ErrMoved
	}
	if err != nil {
		unix.Close(fd)
		return err
	}
	s.fd = fd
	return nil
}

// spotOf opens the directory of a clean path.
func (t *Tree) spotOf(name string) (spot, error) {
	s := spot{fd: -1}
	s.path, s.base = split(name)
	if s.base == "." || t.reg.isTemporary(s.base) {
		return s, ErrReserved
	}
	plain, err := t.openPlain(s.path)
	if err != nil {
		return s, err
	}
	defer unix.Close(plain)
	i, err := t.sys.fstat(plain, "")
	if err != nil {
		return s, err
	}
	s.dev, s.inode = uint64(i.st.Dev), i.st.Ino
	return s, s.open(t, syncFlags)
}

// add looks at one change, so that as little as possible can go wrong after the record.
func (c *commit) add(change Change) error {
	t := c.tree
	name, err := clean(change.Name)
	if err != nil {
		return err
	}
	s := &step{change: change, from: spot{fd: -1}}
	s.change.Name = name
	if s.to, err = t.spotOf(name); err != nil {
		return err
	}
	c.steps = append(c.steps, s)
	there, err := t.sys.lstatat(s.to.fd, s.to.base, s.to.base)
	switch {
	case err == nil && there.IsDir():
		return unix.EISDIR
	case err != nil && err != unix.ENOENT:
		return err
	case change.Upload != nil:
		return s.stage(t, change.Upload)
	case err == unix.ENOENT:
		return nil // inode 0: nothing to remove
	}
	s.inode, s.birth, err = t.sys.born(s.to.fd, s.to.base)
	return err
}

// stage makes the content complete, and notes where it is.
func (s *step) stage(t *Tree, u *Upload) error {
	if err := u.Sync(); err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.over {
		return ErrDone
	}
	i, err := t.sys.fstat(u.place.dir, "")
	if err != nil {
		return err
	}
	s.from = spot{fd: -1, dev: uint64(i.st.Dev), inode: i.st.Ino, base: u.rec.temporary()}
	s.from.path, _ = split(t.reg.nameOf(u))
	return s.from.open(t, syncFlags)
}

// prepared makes the names of the temporaries last: a redo takes one that is missing for one that has its final name.
func (c *commit) prepared() error {
	var from []*spot
	for _, s := range c.steps {
		if s.from.base != "" {
			from = append(from, &s.from)
		}
	}
	return c.sync(from)
}

// apply makes all changes. What was made before is left as it is. name is that of the change that failed.
func (c *commit) apply() (name string, err error) {
	for _, s := range c.steps {
		if err := s.apply(c.tree); err != nil {
			return s.change.Name, err
		}
	}
	return "", nil
}

func (s *step) apply(t *Tree) error {
	if s.from.base == "" {
		return s.remove(t)
	}
	err := t.sys.renameat(s.from.fd, s.from.base, s.to.fd, s.to.base)
	if err == unix.ENOENT { // done already, unless it is the directory that is gone
		if _, left := t.sys.lstatat(s.from.fd, s.from.base, ""); left == unix.ENOENT {
			return nil
		}
	}
	if err != nil {
		return err
	}
	// rename(2) does nothing where both are links of one file, as when a file is renamed to and fro.
	if err := t.sys.unlinkat(s.from.fd, s.from.base); err != nil && err != unix.ENOENT {
		return err
	}
	return nil
}

// remove removes the very file that was there when the commit was recorded.
func (s *step) remove(t *Tree) error {
	if s.inode == 0 {
		return nil
	}
	inode, birth, err := t.sys.born(s.to.fd, s.to.base)
	if err == unix.ENOENT || err == nil && (inode != s.inode || birth != s.birth) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := t.sys.unlinkat(s.to.fd, s.to.base); err != unix.ENOENT {
		return err
	}
	return nil
}

// lasting makes the changes last.
func (c *commit) lasting() error {
	var to []*spot
	for _, s := range c.steps {
		to = append(to, &s.to)
	}
	return c.sync(to)
}

// sync syncs every directory once, if the tree is durable.
func (c *commit) sync(spots []*spot) error {
	if !c.durable {
		return nil
	}
	var errs []error
	var synced []uint64
	for _, s := range spots {
		if slices.Contains(synced, s.inode) {
			continue
		}
		synced = append(synced, s.inode)
		if err := c.tree.sys.fsync(s.fd); err != unix.EBADF { // of a directory that may not be read
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// end forgets a commit that is done, but for its record while that is all that makes it last.
func (c *commit) end(lasts bool) {
	for _, s := range c.steps {
		if u := s.change.Upload; u != nil {
			u.mu.Lock()
			if !u.over {
				u.endLocked(nil)
			}
			u.mu.Unlock()
		}
	}
	if !lasts {
		c.record.leave()
		return
	}
	if err := c.record.remove(c.tree); err != nil {
		c.tree.log.Warn("the record of a commit could not be removed", "error", err)
	}
}

// release closes what the commit has open, unless it is to be finished later.
func (c *commit) release() {
	if c.kept {
		return
	}
	for _, s := range c.steps {
		s.to.close()
		s.from.close()
	}
}

// commits are those of a tree that are not done.
type commits struct {
	mu         sync.Mutex
	unfinished []*commit
	redone     []*Redone
}

func (c *commits) keepUnfinished(one *commit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one.kept = true
	c.unfinished = append(c.unfinished, one)
}

func (c *commits) takeUnfinished() []*commit {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.unfinished
	c.unfinished = nil
	for _, one := range all {
		one.kept = false
	}
	return all
}

// close gives back what those hold open that the next start has to finish.
func (c *commits) close() error {
	for _, one := range c.takeUnfinished() {
		one.record.leave()
		one.release()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.redone {
		r.record.leave()
	}
	c.redone = nil
	return nil
}
