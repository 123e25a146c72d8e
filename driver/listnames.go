package driver

import (
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/spf13/afero"

	"github.com/ftplockd/ftplockd/internal/lock"
)

const (
	// pieceMax is how many names of a directory are held at a time.
	pieceMax = 2_000
	// singlesMax is how many names a listing may have that must be held all: directories that a pattern fits, what is sorted by
	// time or size, the reply to STAT.
	singlesMax = 10_000
)

// names reads the names in a directory: files, locks without a directory, the status file. They come in pieces, each sorted, so
// a directory of at most pieceMax names is sorted, and a larger one piece by piece.
type names struct {
	client *client
	in     lock.Name
	disk   string     // where in the tree that is
	file   afero.File // nil: there is no directory
	looker looker     // the same; nil: it cannot
	locks  []string   // the names of the locks in it that were held when it was opened, sorted
	status string     // the name of the status file; "": it is not here
	more   []string   // what was not read from the directory and is to come
}

// openNames opens a directory as the account sees it, or a lock. Close must follow.
func (c *client) openNames(view string) (*names, error) {
	in, err := c.follow(view)
	if err != nil {
		return nil, err
	}
	r := &names{client: c, in: in, disk: c.server.diskDir(in)}
	for _, s := range c.table().Children(in) {
		r.locks = append(r.locks, s.Name.Base())
	}
	slices.Sort(r.locks)
	r.more = r.locks
	if dir, base := path.Split(c.server.settings.Load().StatusFile); base != "" && path.Clean(dir) == view {
		r.status = base
		r.more = append(slices.Clip(r.locks), base)
	}
	if r.file, err = c.server.tree.Open(r.disk); err != nil && !c.table().Held(in) {
		return nil, err
	}
	r.looker, _ = r.file.(looker)
	return r, nil
}

func (r *names) Close() error {
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}

// next returns some names, sorted, or io.EOF.
func (r *names) next() ([]string, error) {
	piece := slices.Clone(r.more)
	r.more = nil
	for r.file != nil && len(piece) < pieceMax {
		found, err := r.file.Readdirnames(pieceMax - len(piece))
		for _, name := range found {
			if !r.isLock(name) && name != r.status {
				piece = append(piece, name)
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	if len(piece) == 0 {
		return nil, io.EOF
	}
	slices.Sort(piece)
	return piece, nil
}

func (r *names) isLock(name string) bool {
	_, is := slices.BinarySearch(r.locks, name)
	return is
}

// describe looks up what has one of the names.
func (r *names) describe(name string) (entry, bool) {
	c := r.client
	if name == r.status && name != "" {
		return entry{info: c.server.statusInfo(c.account)}, true
	}
	if r.isLock(name) {
		if s, held := c.table().Get(lock.Name(path.Join(string(r.in), name))); held {
			return entryOf(lockInfo{s}), true
		}
	}
	if r.looker != nil {
		info, err := r.looker.Lstat(name)
		if err != nil || info.Mode()&fs.ModeSymlink == 0 {
			return entry{info: info}, err == nil
		}
	}
	return c.describeFile(path.Join(r.disk, name))
}

// looker is what an open directory of the tree does besides: it describes what is in it without opening its path again.
type looker interface {
	Lstat(base string) (fs.FileInfo, error)
}

// describeFile looks up what a name in the tree stands for, a link followed as far as it leads inside the tree, so that clients
// which know no links see files and directories.
func (c *client) describeFile(disk string) (entry, bool) {
	info, err := c.server.tree.Lstat(disk)
	if err != nil {
		return entry{}, false
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		if target, err := c.server.tree.Stat(disk); err == nil {
			info = target
		}
	}
	return entry{info: info}, true
}

// describe looks up what a path stands for.
func (c *client) describe(view string) (entry, bool) {
	if info, err := c.stat(view); err == nil {
		return entryOf(info), true
	}
	n, err := c.resolve(view) // a link that leads nowhere
	if err != nil {
		return entry{}, false
	}
	return c.describeFile(c.server.disk(n))
}

// entryOf is the entry of something that was looked up.
func entryOf(info fs.FileInfo) entry {
	e := entry{info: info}
	if l, ok := info.(lockInfo); ok {
		e.owner = l.status.Holds[0].Owner.Account
	}
	return e
}

// isEmpty reports whether surely nothing lies in a directory.
func (c *client) isEmpty(n lock.Name) bool {
	dir, err := c.server.tree.Open(c.server.diskDir(n))
	if err != nil {
		return false
	}
	defer dir.Close()
	_, err = dir.Readdirnames(1)
	return err == io.EOF
}

// forgesLine reports whether a name would look like more than one line.
func forgesLine(name string) bool { return strings.ContainsAny(name, "\r\n") }
