package driver

import (
	"io"
	"io/fs"
	"path"
	"slices"

	"github.com/spf13/afero"
)

// names reads the names in a directory: files, and locks without a directory. It returns them in pieces, each sorted. A directory of less
// than pieceSize names is one piece. It omits the status file: programs that mirror a directory would remove it, or compare its size.
type names struct {
	pieceSize    int
	client       *client
	view         string
	file         afero.File // nil: the lock has no directory
	held         []string   // sorted: the locks that were held when it was opened
	status       string     // the name of the status file, if it is in the directory
	heldReturned bool       // held was returned
}

// openNames opens a directory, or a held lock without one. The caller must close it.
func (c *client) openNames(view string) (*names, error) {
	in, err := c.follow(view)
	if err != nil {
		return nil, err
	}
	r := &names{pieceSize: c.server.bounds.piece, client: c, view: view}
	for _, n := range c.table().Children(in) { // without automatic locks: a mirror would remove them
		r.held = append(r.held, n.Base())
	}
	if dir, base := path.Split(c.server.settings.Load().FTP.StatusFile); base != "" && path.Clean(dir) == view {
		r.status = base
	}
	r.file, err = c.server.tree.Open(string(in))
	if isNotThere(err) && c.table().Held(in) {
		return r, nil
	}
	return r, err
}

func (r *names) Close() error {
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}

// next returns the next piece, sorted, or io.EOF.
func (r *names) next() (piece []string, err error) {
	if !r.heldReturned {
		r.heldReturned = true
		piece = slices.Clone(r.held)
	}
	for r.file != nil && len(piece) < r.pieceSize && err == nil {
		var found []string
		found, err = r.file.Readdirnames(r.pieceSize - len(piece))
		for _, name := range found {
			if name != r.status && !r.isHeld(name) {
				piece = append(piece, name)
			}
		}
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

// isHeld reports whether a name is that of a lock.
func (r *names) isHeld(name string) bool {
	_, is := slices.BinarySearch(r.held, name)
	return is
}

// describe describes one of the names as statEntry does. It returns nil if no file has the name any more, or if the client may not see it.
func (r *names) describe(name string) (fs.FileInfo, error) {
	if dir, ok := r.file.(interface {
		Lstat(base string) (fs.FileInfo, error) // does not resolve the directory's path again
	}); ok && !r.isHeld(name) {
		info, err := dir.Lstat(name)
		if err != nil {
			return nil, r.client.unforeseen(err)
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			return info, nil
		}
	}
	info, err := r.client.statEntry(path.Join(r.view, name))
	if err != nil {
		return nil, r.client.unforeseen(err)
	}
	return info, nil
}
