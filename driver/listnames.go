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
	// heldMax is how many names a listing may have that must be held all: directories that a pattern fits, what is sorted by
	// time or size.
	heldMax = 10_000
)

// names reads the names in a directory: files, locks without a directory, the status file. They come in pieces, each sorted, so
// a directory of at most pieceMax names is sorted, and a larger one piece by piece.
type names struct {
	client *client
	view   string
	in     lock.Name
	file   afero.File // nil: there is no directory
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
	r := &names{client: c, view: view, in: in}
	for _, s := range c.table().Children(in) {
		if s.Holds[0].Automatic { // a mirror would remove it
			continue
		}
		r.locks = append(r.locks, s.Name.Base())
	}
	slices.Sort(r.locks)
	r.more = r.locks
	if dir, base := path.Split(c.server.settings.Load().StatusFile); base != "" && path.Clean(dir) == view {
		r.status = base
		r.more = append(slices.Clip(r.locks), base)
	}
	if r.file, err = c.server.tree.Open(string(in)); err != nil && !c.table().Held(in) {
		return nil, err
	}
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

// describe says what has one of the names, and which name that is where a link leads; nil and no error: it has gone, or may not be looked at.
func (r *names) describe(name string) (fs.FileInfo, lock.Name, error) {
	if looker, ok := r.file.(looker); ok && name != r.status && !r.isLock(name) {
		info, err := looker.Lstat(name)
		switch {
		case err != nil:
			return nil, "", r.client.unforeseen(err)
		case info.Mode()&fs.ModeSymlink == 0:
			return info, lock.Name(path.Join(string(r.in), name)), nil
		}
	}
	view := path.Join(r.view, name)
	info, err := r.client.describe(view)
	if err != nil {
		return nil, "", r.client.unforeseen(err)
	}
	n, err := r.client.subject(view, info)
	return info, n, r.client.unforeseen(err)
}

// looker is what an open directory of the tree does besides: it describes what is in it without opening its path again.
type looker interface {
	Lstat(base string) (fs.FileInfo, error)
}

// describe says what a path stands for: what a link leads to inside the tree, so that clients which know no links see files
// and directories, or a link itself that leads nowhere.
func (c *client) describe(view string) (fs.FileInfo, error) {
	info, err := c.stat(view)
	if err == nil {
		return info, nil
	}
	if n, rerr := c.resolve(view); rerr == nil {
		if link, lerr := c.lstat(n); lerr == nil {
			return link, nil
		}
	}
	return nil, err
}

// isEmpty reports whether surely nothing lies in a directory.
func (c *client) isEmpty(n lock.Name) bool {
	dir, err := c.server.tree.Open(string(n))
	if err != nil {
		return false
	}
	defer dir.Close()
	_, err = dir.Readdirnames(1)
	return err == io.EOF
}

// forgesLine reports whether a name would look like more than one line.
func forgesLine(name string) bool { return strings.ContainsAny(name, "\r\n") }
