package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// download is a local file that is replaced as a whole or not at all.
type download struct {
	to   string
	file *os.File // a temporary one beside it
	mode fs.FileMode
	done bool
}

// newDownload makes the temporary file. A link is followed; a directory gets a file of that name.
func newDownload(local, name string) (*download, error) {
	d := &download{to: local}
	if real, err := filepath.EvalSymlinks(local); err == nil {
		d.to = real
	}
	info, err := os.Stat(d.to)
	if err == nil && info.IsDir() {
		if name == "." || name == ".." || name == "/" {
			return nil, fmt.Errorf("%s is a directory: say the name of the file in it, too", local)
		}
		d.to = filepath.Join(d.to, name)
		info, err = os.Stat(d.to)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.mode = 0o666 // less the umask
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file, so it cannot be replaced; \"-\" is standard output", d.to)
	default:
		d.mode = info.Mode().Perm()
	}
	d.file, err = d.create(err == nil)
	return d, err
}

// create makes a file with a mode that os.CreateTemp does not give: that of the old file, or one that the umask decides.
func (d *download) create(replaces bool) (*os.File, error) {
	dir, base := filepath.Split(d.to)
	name := filepath.Join(dir, "."+strings.TrimPrefix(base, ".")+".netlock-"+rand.Text()[:12])
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, d.mode)
	if err != nil || !replaces {
		return f, err
	}
	if err := f.Chmod(d.mode); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(name))
	}
	return f, nil
}

// finish has all of it on the disk.
func (d *download) finish() error { return errors.Join(d.file.Sync(), d.file.Close()) }

// publish puts it in the place of the old file.
func (d *download) publish() error {
	if err := os.Rename(d.file.Name(), d.to); err != nil {
		return err
	}
	d.done = true
	return syncDir(filepath.Dir(d.to))
}

// discard removes what was not published.
func (d *download) discard() {
	if !d.done {
		_ = d.file.Close()
		_ = os.Remove(d.file.Name())
	}
}

// syncDir makes a rename last. A directory that cannot be opened like a file (Windows) is left alone.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	if err := f.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, fs.ErrInvalid) && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}
