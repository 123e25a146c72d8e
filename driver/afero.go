package driver

import (
	"io/fs"
	"math"
	"os"
	"time"

	"github.com/spf13/afero"
)

// What follows is afero.Fs for ftpserverlib; each method is one of the operations of client.go,
// changes.go and look.go. The library calls none of them, since it is handed no command that would.

// Name implements afero.Fs.
func (c *client) Name() string { return "ftplockd" }

// Mkdir implements afero.Fs: MKD.
func (c *client) Mkdir(name string, _ os.FileMode) error {
	_, err := c.make(c.session.context(), name)
	return err
}

// MkdirAll is refused: it would report an existing lock as taken.
func (c *client) MkdirAll(string, os.FileMode) error { return errIsLock }

// RemoveDir implements ftpserver.ClientDriverExtensionRemoveDir: RMD.
func (c *client) RemoveDir(name string) error {
	_, err := c.unmake(c.session.context(), name)
	return err
}

// Remove implements afero.Fs: DELE.
func (c *client) Remove(name string) error { return c.delete(c.session.context(), name) }

// RemoveAll is refused: nothing in the tree is ever removed recursively.
func (c *client) RemoveAll(string) error { return fs.ErrPermission }

// Rename implements afero.Fs: RNFR and RNTO.
func (c *client) Rename(from, to string) error { return c.move(c.session.context(), from, to) }

// Stat implements afero.Fs.
func (c *client) Stat(name string) (os.FileInfo, error) { return c.stat(name) }

// ReadDir implements ftpserver.ClientDriverExtensionFileList.
func (c *client) ReadDir(name string) ([]os.FileInfo, error) {
	entries, err := c.list(name)
	infos := make([]os.FileInfo, len(entries))
	for i, e := range (listOptions{all: true}).arrange(entries) {
		infos[i] = e.info
	}
	return infos, err
}

// Chtimes implements afero.Fs: MFMT.
func (c *client) Chtimes(name string, atime, mtime time.Time) error {
	return c.change(name, func(f changeable) error { return f.Chtimes(atime, mtime) })
}

// Chmod implements afero.Fs: SITE CHMOD, for accounts that may.
func (c *client) Chmod(name string, mode os.FileMode) error {
	if !c.account.Chmod {
		return errChmod
	}
	return c.change(name, func(f changeable) error { return f.Chmod(mode) })
}

// Chown is refused: files belong to the server's user.
func (c *client) Chown(string, int, int) error { return fs.ErrPermission }

// Create implements afero.Fs; uploads are transfers of the session.
func (c *client) Create(string) (afero.File, error) { return nil, fs.ErrPermission }

// Open implements afero.Fs; downloads are transfers of the session.
func (c *client) Open(string) (afero.File, error) { return nil, fs.ErrPermission }

// OpenFile implements afero.Fs, likewise.
func (c *client) OpenFile(string, int, os.FileMode) (afero.File, error) { return nil, fs.ErrPermission }

// GetAvailableSpace implements ftpserver.ClientDriverExtensionAvailableSpace: AVBL, in bytes.
func (c *client) GetAvailableSpace(dir string) (int64, error) {
	n, err := c.resolve(dir)
	if err != nil {
		return 0, err
	}
	space, err := c.tree().Space(string(n))
	return int64(min(space, math.MaxInt64)), err
}
