package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// download replaces a local file as a whole or not at all. Until it is complete, the new file has a hidden name beside the old one.
type download struct {
	to   string
	file *os.File
}

// newDownload makes the new file. It follows a link, also one in a directory. In a directory the file gets the name.
func newDownload(local, name string) (_ *download, err error) {
	d := new(download)
	if d.to, err = follow(local); err != nil {
		return nil, err
	}
	info, err := os.Stat(d.to)
	if err == nil && info.IsDir() {
		if name == "." || name == ".." || name == "/" {
			return nil, fmt.Errorf("%s is a directory: give the name of the file in it, too", local)
		}
		if d.to, err = follow(filepath.Join(d.to, name)); err != nil {
			return nil, err
		}
		info, err = os.Stat(d.to)
	}
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	case err == nil && !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file, so it cannot be replaced; \"-\" is standard output", d.to)
	}
	hidden := filepath.Join(filepath.Dir(d.to), "."+filepath.Base(d.to)+".netlock-"+rand.Text()[:10])
	mode := fs.FileMode(0o666)
	if info != nil {
		mode = info.Mode().Perm() // from the beginning: the old file may be secret
	}
	if d.file, err = os.OpenFile(hidden, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode); err != nil {
		return nil, err
	}
	if info != nil {
		if err := os.Chmod(hidden, mode); err != nil { // the umask has cleared bits
			d.discard()
			return nil, err
		}
	}
	return d, nil
}

// follow returns the file that a link leads to, and any other name as it is: on Windows EvalSymlinks fails for some files that are no links. A
// link that leads nowhere is an error: the download would replace the link itself.
func follow(local string) (string, error) {
	if info, err := os.Lstat(local); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return local, nil
	}
	return filepath.EvalSymlinks(local)
}

// publish renames the new file, which is on the disk, to the name of the old one.
func (d *download) publish() error {
	if err := d.file.Close(); err != nil {
		return err
	}
	if err := os.Rename(d.file.Name(), d.to); err != nil {
		return err
	}
	if dir, err := os.Open(filepath.Dir(d.to)); err == nil { // some systems cannot open a directory as a file
		_ = dir.Sync() // or cannot sync one
		_ = dir.Close()
	}
	return nil
}

// discard removes the new file if it was not published.
func (d *download) discard() {
	_ = d.file.Close()
	_ = os.Remove(d.file.Name())
}
