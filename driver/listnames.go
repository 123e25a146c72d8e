package driver

import (
	"io"
	"io/fs"
	"path"
	"slices"

	"github.com/spf13/afero"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// pieceMax is how many names of a directory are held at a time.
const pieceMax = 2_000

// names reads the names in a directory: files, locks without a directory, the status file. They come in pieces, each sorted:
// a directory of at most pieceMax names is sorted, a larger one piece by piece.
type names struct {
	client *client
	view   string
	in     lock.Name
	file   afero.File // nil: there is no directory
	made   []string   // sorted: the locks that were held when it was opened, and the status file
	begun  bool       // made was returned
}

// openNames opens a directory as the account sees it, or a lock. Close must follow.
func (c *client) openNames(view string) (*names, error) {
	in, err := c.follow(view)
	if err != nil {
		return nil, err
	}
	r := &names{client: c, view: view, in: in}
	for _, n := range c.table().Children(in) { // without automatic locks: a mirror would remove them
		r.made = append(r.made, n.Base())
	}
	if dir, base := path.Split(c.server.settings.Load().StatusFile); base != "" && path.Clean(dir) == view {
		r.made = append(r.made, base)
	}
	slices.Sort(r.made)
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
func (r *names) next() (piece []string, err error) {
	if !r.begun {
		r.begun = true
		piece = slices.Clone(r.made)
	}
	for r.file != nil && len(piece) < pieceMax && err == nil {
		var found []string
		found, err = r.file.Readdirnames(pieceMax - len(piece))
		piece = append(piece, slices.DeleteFunc(found, r.isMade)...)
	}
	switch {
	case err != nil && err != io.EOF:
		return nil, err
	case len(piece) == 0:
		return nil, io.EOF
	}
	slices.Sort(piece)
	return piece, nil
}

// isMade reports whether a name is one of a lock or of the status file.
func (r *names) isMade(name string) bool {
	_, is := slices.BinarySearch(r.made, name)
	return is
}

// describe describes what has one of the names, or what a link leads to, with its own name. A nil info and no error: it has gone, or
// the client may not see it.
func (r *names) describe(name string) (fs.FileInfo, lock.Name, error) {
	if dir, ok := r.file.(looker); ok && !r.isMade(name) {
		info, err := dir.Lstat(name)
		switch {
		case err != nil:
			return nil, "", r.client.unforeseen(err)
		case info.Mode()&fs.ModeSymlink == 0:
			return info, lock.Name(path.Join(string(r.in), name)), nil
		}
	}
	info, n, err := r.client.describe(path.Join(r.view, name))
	return info, n, r.client.unforeseen(err)
}

// looker is an open directory of the tree: it describes what is in it without opening its path again.
type looker interface {
	Lstat(base string) (fs.FileInfo, error)
}

// describe describes what a path stands for, and returns its name: what a link leads to inside the tree, so that clients without
// support for links see files and directories, or a link itself that leads nowhere.
func (c *client) describe(view string) (fs.FileInfo, lock.Name, error) {
	info, err := c.stat(view)
	if err != nil {
		n, rerr := c.resolve(view)
		if rerr == nil {
			info, rerr = c.lstat(n)
		}
		if rerr != nil {
			return nil, "", err
		}
	}
	n, err := c.subject(view, info)
	return info, n, err
}

// isEmpty reports whether a directory can be read and nothing lies in it.
func (c *client) isEmpty(n lock.Name) bool {
	dir, err := c.server.tree.Open(string(n))
	if err != nil {
		return false
	}
	defer dir.Close()
	_, err = dir.Readdirnames(1)
	return err == io.EOF
}
