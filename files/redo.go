package files

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The names of records of commits in the state directory, while they are written and when they count.
const (
	writingPrefix = "committing-"
	commitPrefix  = "commit-"
)

// commitRecord is the record of a commit: a file in the state directory that is locked (flock) for as long as
// a process works on the commit, as those of uploads are.
type commitRecord struct {
	name string
	file *os.File
}

// leave gives the record free for the next start.
func (r *commitRecord) leave() {
	if r.file != nil {
		r.file.Close()
		r.file = nil
	}
}

func (r *commitRecord) remove(t *Tree) error {
	defer r.leave()
	if err := t.sys.check("uncommit"); err != nil {
		return err
	}
	return bare(t.state.Remove(r.name))
}

// write makes the record. When its name and content are on disk there is no way back.
func (c *commit) write() error {
	t, id := c.tree, newID()
	if err := t.sys.check("commit"); err != nil {
		return err
	}
	writing := writingPrefix + id
	f, err := t.state.OpenFile(writing, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return bare(err)
	}
	c.record = commitRecord{commitPrefix + id, f}
	if err = flock(f); err == nil {
		_, err = f.Write(c.text())
	}
	if err == nil {
		err = t.sys.fsync(int(f.Fd()))
	}
	if err == nil {
		err = t.sys.check("record commit")
	}
	if err == nil {
		err = t.state.Rename(writing, c.record.name)
	}
	if err == nil {
		if err = t.syncState(); err == nil {
			return nil
		}
	}
	// Neither name may be left: the one that counts would be redone.
	t.state.Remove(c.record.name)
	t.state.Remove(writing)
	c.record.leave()
	return bare(err)
}

func (t *Tree) syncState() error {
	d, err := t.state.Open(".")
	if err != nil {
		return bare(err)
	}
	defer d.Close()
	return t.sys.fsync(int(d.Fd()))
}

// text is the record as it stands in its file: a line for each change between a head and a checksum. Names are
// bytes: they are quoted.
func (c *commit) text() []byte {
	b := fmt.Appendf(nil, "commit 1 %q\n", c.label)
	for _, s := range c.steps {
		b = fmt.Appendf(b, "%q %d %d %q %q %d %d %q %d %d %d %q %q\n", s.to.path, s.to.dev, s.to.inode, s.to.base,
			s.from.path, s.from.dev, s.from.inode, s.from.base, s.inode, uint64(s.birth), uint64(s.change.Bytes), s.change.SHA256, s.change.Note)
	}
	return fmt.Appendf(b, "%08x\n", crc32.ChecksumIEEE(b))
}

// parseCommit reads what text wrote.
func parseCommit(text []byte) (*commit, bool) {
	end := bytes.LastIndexByte(bytes.TrimSuffix(text, []byte("\n")), '\n') + 1
	sum, err := strconv.ParseUint(strings.TrimSuffix(string(text[end:]), "\n"), 16, 32)
	if err != nil || end == 0 || uint32(sum) != crc32.ChecksumIEEE(text[:end]) {
		return nil, false
	}
	lines := strings.Split(strings.TrimSuffix(string(text[:end]), "\n"), "\n")
	c := &commit{}
	head, ok := strings.CutPrefix(lines[0], "commit 1 ")
	if !ok || !quoted(&head, &c.label) {
		return nil, false
	}
	for _, l := range lines[1:] {
		s := &step{to: spot{fd: -1}, from: spot{fd: -1}}
		var birth, size uint64
		ok := quoted(&l, &s.to.path) && number(&l, &s.to.dev) && number(&l, &s.to.inode) && quoted(&l, &s.to.base) &&
			quoted(&l, &s.from.path) && number(&l, &s.from.dev) && number(&l, &s.from.inode) && quoted(&l, &s.from.base) &&
			number(&l, &s.inode) && number(&l, &birth) && number(&l, &size) && quoted(&l, &s.change.SHA256) && quoted(&l, &s.change.Note)
		if !ok || l != "" {
			return nil, false
		}
		s.birth, s.change.Bytes, s.change.Name = int64(birth), int64(size), join(s.to.path, s.to.base)
		c.steps = append(c.steps, s)
	}
	return c, true
}

// Redone is a commit that a crash interrupted and Open did to its end.
type Redone struct {
	Label   string
	Changes []Change // without their uploads
	tree    *Tree
	record  commitRecord
}

// Redone returns the commits that Open redid. Each is kept, over restarts, too, until Forget.
func (t *Tree) Redone() []*Redone {
	t.commits.mu.Lock()
	defer t.commits.mu.Unlock()
	all := t.commits.redone
	t.commits.redone = nil
	return all
}

// Forget removes the record.
func (r *Redone) Forget() error { return fail("commit", "/", r.record.remove(r.tree)) }

// redo does to their ends the commits that are recorded and that nobody works on. One whose directories were moved
// on the host, or that fails, is left for the next start, and logged.
func (t *Tree) redo() error {
	d, err := t.state.Open(".")
	if err != nil {
		return err
	}
	names, err := d.Readdirnames(-1)
	d.Close()
	if err != nil {
		return err
	}
	for _, n := range names {
		if strings.HasPrefix(n, writingPrefix) || strings.HasPrefix(n, commitPrefix) {
			if err := t.redoOne(n); err != nil {
				t.log.Error("a commit that was interrupted could not be done to its end", "record", n, "error", err)
			}
		}
	}
	return nil
}

func (t *Tree) redoOne(name string) error {
	f, err := t.state.OpenFile(name, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return bare(err)
	}
	record := commitRecord{name, f}
	if err := flock(f); err != nil {
		record.leave()
		if err == unix.EWOULDBLOCK { // somebody works on it
			return nil
		}
		return err
	}
	if strings.HasPrefix(name, writingPrefix) { // it never counted
		return record.remove(t)
	}
	text, err := io.ReadAll(f)
	if err != nil {
		record.leave()
		return bare(err)
	}
	c, ok := parseCommit(text)
	if !ok {
		record.leave()
		return errors.New("its record is damaged")
	}
	c.tree, c.durable, c.record = t, true, record
	defer c.release()
	if err := c.reopen(); err != nil {
		record.leave()
		return err
	}
	// The crash may have come before the record was sure to last; now it must, as there is no way back.
	if err = t.syncState(); err == nil {
		_, err = c.apply()
	}
	if err == nil {
		err = c.lasting()
	}
	if err != nil {
		record.leave()
		return err
	}
	r := &Redone{Label: c.label, tree: t, record: record}
	for _, s := range c.steps {
		r.Changes = append(r.Changes, s.change)
		t.log.Info("a publication that was interrupted is done", "name", s.change.Name)
	}
	t.commits.redone = append(t.commits.redone, r)
	return nil
}

// reopen opens the directories of a commit that was read.
func (c *commit) reopen() error {
	for _, s := range c.steps {
		if err := s.to.open(c.tree, syncFlags); err != nil {
			return err
		}
		if s.from.base == "" {
			continue
		}
		if err := s.from.open(c.tree, dirFlags); err != nil {
			return err
		}
	}
	return nil
}
