package driver

import (
	"bytes"
	"io"
	"io/fs"
	"path"
	"slices"
	"time"

	"github.com/ftplockd/ftplockd/files"
	"github.com/ftplockd/ftplockd/lock"
)

// lstat describes what a name stands for: a lock, a note, or what lies on disk. A lock's modification
// time is the moment when it was acquired.
func (c *client) lstat(n lock.Name) (fs.FileInfo, error) {
	if s, held := c.table().Get(n); held {
		return lockInfo{s}, nil
	}
	if s, inside := c.lockAround(n); inside && n.Parent() == s.Name {
		for _, h := range s.Holds {
			if info, err := c.server.notes.stat(h.Token, n.Base()); err == nil {
				return info, nil
			}
		}
	}
	return c.lstatFile(n)
}

// stat is lstat with the last link followed.
func (c *client) stat(view string) (fs.FileInfo, error) {
	c.server.layout.RLock()
	defer c.server.layout.RUnlock()
	if c.isStatus(view) {
		return c.server.statusInfo(c.account), nil
	}
	n, err := c.resolve(view)
	if err != nil {
		return nil, err
	}
	info, err := c.lstat(n)
	if err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return info, err
	}
	target, err := c.follow(view)
	if err != nil {
		return nil, err
	}
	info, err = c.lstat(target)
	if err != nil {
		return nil, err
	}
	return namedInfo{info, n.Base()}, nil
}

// list returns what a directory holds, unsorted: files, locks without a directory, notes, the status file.
func (c *client) list(view string) ([]entry, error) {
	c.server.layout.RLock()
	defer c.server.layout.RUnlock()
	n, err := c.follow(view)
	if err != nil {
		return nil, err
	}
	status, held := c.table().Get(n)
	infos, err := c.tree().ReadDir(string(n))
	if err != nil && !held {
		return nil, err
	}
	byName := make(map[string]entry, len(infos))
	for _, info := range infos {
		byName[info.Name()] = shown(info.Name(), c.followed(n, info))
	}
	c.amend(n, byName)
	for _, h := range status.Holds {
		written, err := c.server.notes.list(h.Token)
		if err != nil {
			return nil, err
		}
		for _, info := range written {
			byName[info.Name()] = entry{info.Name(), info, h.Owner.Account}
		}
	}
	for _, s := range c.table().Children(n) {
		byName[s.Name.Base()] = shown(s.Name.Base(), lockInfo{s})
	}
	if dir, base := path.Split(c.server.settings.Load().StatusFile); base != "" && path.Clean(dir) == view {
		byName[base] = shown(base, c.server.statusInfo(c.account))
	}
	entries := make([]entry, 0, len(byName))
	for _, e := range byName {
		entries = append(entries, e)
	}
	return entries, nil
}

// followed describes what a link leads to, as far as it leads inside the tree, so that clients which
// know no links see files and directories.
func (c *client) followed(dir lock.Name, info fs.FileInfo) fs.FileInfo {
	if info.Mode()&fs.ModeSymlink == 0 {
		return info
	}
	target, err := c.tree().Stat(path.Join(string(dir), info.Name()))
	if err != nil {
		return info
	}
	return namedInfo{target, info.Name()}
}

// readNote returns the text of a note, or false if the name is none.
func (c *client) readNote(n lock.Name) ([]byte, fs.FileInfo, bool) {
	s, inside := c.lockAround(n)
	if !inside || n.Parent() != s.Name {
		return nil, nil, false
	}
	for _, h := range s.Holds {
		if text, info, err := c.server.notes.get(h.Token, n.Base()); err == nil {
			return text, info, true
		}
	}
	return nil, nil, false
}

// lockInfo describes a lock as a directory.
type lockInfo struct{ status lock.Status }

func (l lockInfo) Name() string      { return l.status.Name.Base() }
func (l lockInfo) Size() int64       { return 0 }
func (l lockInfo) Mode() fs.FileMode { return fs.ModeDir | 0o755 }
func (l lockInfo) IsDir() bool       { return true }
func (l lockInfo) Sys() any          { return nil }

// ModTime is when the first of the holds that stand was acquired.
func (l lockInfo) ModTime() time.Time {
	return slices.MinFunc(l.status.Holds, func(a, b lock.Hold) int {
		return a.Acquired.Wall.Compare(b.Acquired.Wall)
	}).Acquired.Wall
}

// content opens what RETR sends: a file, a note, the status file.
func (c *client) content(view string, o files.DownloadOptions) (source, error) {
	if !c.account.Read {
		return nil, errWriteOnly
	}
	if c.isStatus(view) {
		return newText(c.server.statusText(c.account), o)
	}
	c.server.layout.RLock()
	defer c.server.layout.RUnlock()
	n, err := c.resolve(view)
	if err != nil {
		return nil, err
	}
	if text, _, ok := c.readNote(n); ok {
		return newText(text, o)
	}
	if _, held := c.table().Get(n); held {
		return nil, errIsDir
	}
	return c.openFile(n, o)
}

// source is what a download reads from. WriteTo sends the rest to the data connection.
type source interface {
	io.Reader
	io.WriterTo
	io.Closer
}

// text is content that is made rather than read from disk: a listing, a note, the status file.
type text struct {
	*bytes.Reader
	timeout time.Duration
}

func newText(content []byte, o files.DownloadOptions) (source, error) {
	if o.Offset > int64(len(content)) {
		return nil, files.ErrOffset
	}
	return &text{bytes.NewReader(content[o.Offset:]), o.Pace.Timeout}, nil
}

// WriteTo sends the text, bounded in time like every other transfer.
func (t *text) WriteTo(w io.Writer) (int64, error) {
	rest := make([]byte, t.Len())
	t.Read(rest) // fills it: a bytes.Reader gives what it has
	return paced{w, t.timeout}.write(w, rest)
}

func (t *text) Close() error { return nil }
