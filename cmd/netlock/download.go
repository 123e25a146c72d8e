package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// download is a local file that is replaced as a whole or not at all. Until it is complete, it has a hidden name beside the old file.
type download struct {
	to   string
	file *os.File
}

// newDownload makes the new file. A link is followed; a directory gets a file of that name.
func newDownload(local, name string) (*download, error) {
	d := &download{to: local}
	if real, err := filepath.EvalSymlinks(local); err == nil {
		d.to = real
	}
	info, err := os.Stat(d.to)
	if err == nil && info.IsDir() {
		if name == "." || name == ".." || name == "/" {
			return nil, fmt.Errorf("%s is a directory: give the name of the file in it, too", local)
		}
		d.to = filepath.Join(d.to, name)
		info, err = os.Stat(d.to)
	}
	mode := fs.FileMode(0o666) &^ umask()
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file, so it cannot be replaced; \"-\" is standard output", d.to)
	default:
		mode = info.Mode().Perm()
	}
	if d.file, err = os.CreateTemp(filepath.Dir(d.to), "."+filepath.Base(d.to)+".netlock-*"); err != nil {
		return nil, err
	}
	if err := os.Chmod(d.file.Name(), mode); err != nil {
		d.discard()
		return nil, err
	}
	return d, nil
}

// publish puts it in the place of the old file, when all of it is on the disk.
func (d *download) publish() error {
	if err := errors.Join(d.file.Sync(), d.file.Close()); err != nil {
		return err
	}
	if err := os.Rename(d.file.Name(), d.to); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(d.to))
	if err != nil {
		return nil // a directory that cannot be opened like a file
	}
	defer dir.Close()
	_ = dir.Sync() // not every system can
	return nil
}

// discard removes what was not published.
func (d *download) discard() {
	_ = d.file.Close()
	_ = os.Remove(d.file.Name())
}
