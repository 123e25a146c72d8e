package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// download is a local file that is replaced as a whole or not at all. Where the system can (unnamed), the new file has no name until it is
// complete, so that a netlock that is killed leaves nothing. Elsewhere it has a hidden name beside the old one, and the next
// download of the file removes what a killed one has left.
type download struct {
	to   string
	file *os.File
	name string // of the file; "": it has none
	done bool
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
			return nil, fmt.Errorf("%s is a directory: say the name of the file in it, too", local)
		}
		d.to = filepath.Join(d.to, name)
		info, err = os.Stat(d.to)
	}
	mode := fs.FileMode(0o666) // less the umask
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file, so it cannot be replaced; \"-\" is standard output", d.to)
	default:
		mode = info.Mode().Perm()
	}
	if d.file, err = unnamed(filepath.Dir(d.to), mode); err != nil {
		d.sweep()
		d.name = d.hidden()
		d.file, err = os.OpenFile(d.name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	}
	if err != nil {
		return nil, err
	}
	if info != nil {
		if err := d.file.Chmod(mode); err != nil { // the umask has taken something away
			d.discard()
			return nil, err
		}
	}
	return d, nil
}

// hidden is a new name beside the file.
func (d *download) hidden() string { return d.prefix() + rand.Text()[:12] }

func (d *download) prefix() string {
	dir, base := filepath.Split(d.to)
	return filepath.Join(dir, "."+strings.TrimPrefix(base, ".")+".netlock-")
}

// sweep removes what killed downloads of the file have left: what nobody has written to for a day.
func (d *download) sweep() {
	left, err := os.ReadDir(filepath.Dir(d.to))
	if err != nil {
		return
	}
	for _, e := range left {
		info, err := e.Info()
		if err == nil && strings.HasPrefix(e.Name(), filepath.Base(d.prefix())) && time.Since(info.ModTime()) > 24*time.Hour {
			_ = os.Remove(filepath.Join(filepath.Dir(d.to), e.Name()))
		}
	}
}

// publish puts it in the place of the old file, when all of it is on the disk.
func (d *download) publish() error {
	if d.name == "" {
		name := d.hidden()
		if err := link(d.file, name); err != nil {
			return err
		}
		d.name = name
	}
	if err := d.file.Close(); err != nil {
		return err
	}
	if err := os.Rename(d.name, d.to); err != nil {
		return err
	}
	d.done = true
	return syncDir(filepath.Dir(d.to))
}

// discard removes what was not published.
func (d *download) discard() {
	if d.done {
		return
	}
	_ = d.file.Close()
	if d.name != "" {
		_ = os.Remove(d.name)
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
