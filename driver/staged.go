package driver

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/ftplockd/ftplockd/files"
	"github.com/ftplockd/ftplockd/lock"
)

// maxStaged is how many paths one hold may prepare changes of; each keeps files open.
const maxStaged = 4096

var errTooManyStaged = &refusal{code: 552, text: fmt.Sprintf("a lock publishes at most %d changes: give it back first", maxStaged)}

// stages are the changes that holders prepare under locks with commit = release: seen by those who speak
// for the hold, published by its RMD, dropped when it ends otherwise.
type stages struct {
	count      atomic.Int64 // of versions: where there are none, nobody waits for mu
	unfinished atomic.Bool  // a publication is recorded and could not be put in place yet

	mu      sync.Mutex
	byToken map[lock.Token]*stage
	byPath  map[lock.Name][]*version
	byDir   map[lock.Name][]*version
}

// stage is what one hold has prepared. A title says which hold that is.
type stage struct {
	title    lock.Title
	versions map[lock.Name]*version
	recorded bool // it is published for good, but not all of it is in place
}

// version is a path as the holder sees it. It does not change once it is put.
type version struct {
	path   lock.Name
	upload *files.Upload // nil: it is gone
	size   int64
	sum    string // SHA-256
	note   string // what was done, if it was no upload
	stage  *stage // set by put
}

func newStages() *stages {
	return &stages{
		byToken: make(map[lock.Token]*stage), byPath: make(map[lock.Name][]*version), byDir: make(map[lock.Name][]*version),
	}
}

// ready returns ErrUnfinished while an earlier publication is not in place, for changes of what locks protect.
func (s *stages) ready(titles []lock.Title) error {
	if s.unfinished.Load() && slices.ContainsFunc(titles, func(t lock.Title) bool { return t.Lock != "" }) {
		return files.ErrUnfinished
	}
	return nil
}

// put makes versions what the holder sees. Those that they replace are discarded. The hold must not
// end meanwhile.
func (s *stages) put(title lock.Title, versions ...*version) error {
	dropped, err := s.replace(title, versions)
	discard(dropped) // what cannot be removed is logged, and swept later
	return err
}

func (s *stages) replace(title lock.Title, versions []*version) (dropped []*version, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.byToken[title.Token]
	if st == nil {
		st = &stage{title: title, versions: make(map[lock.Name]*version)}
	}
	if st.recorded {
		return nil, files.ErrUnfinished
	}
	if len(st.versions)+len(versions) > maxStaged {
		return nil, errTooManyStaged
	}
	s.byToken[title.Token] = st
	for _, v := range versions {
		v.stage = st
		if old := st.versions[v.path]; old != nil {
			s.unlinkLocked(old)
			if !slices.ContainsFunc(versions, func(o *version) bool { return o.upload == old.upload }) {
				dropped = append(dropped, old)
			}
		}
		st.versions[v.path] = v
		s.byPath[v.path] = append(s.byPath[v.path], v)
		s.byDir[v.path.Parent()] = append(s.byDir[v.path.Parent()], v)
		s.count.Add(1)
	}
	return dropped, nil
}

func (s *stages) unlinkLocked(v *version) {
	remove := func(m map[lock.Name][]*version, key lock.Name) {
		if m[key] = slices.DeleteFunc(m[key], func(o *version) bool { return o == v }); len(m[key]) == 0 {
			delete(m, key)
		}
	}
	remove(s.byPath, v.path)
	remove(s.byDir, v.path.Parent())
	s.count.Add(-1)
}

func discard(versions []*version) error {
	var errs []error
	for _, v := range versions {
		if v.upload != nil {
			errs = append(errs, v.upload.Discard())
		}
	}
	return errors.Join(errs...)
}

// at returns the versions of one path.
func (s *stages) at(n lock.Name) []*version {
	if s.count.Load() == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return unrecorded(s.byPath[n])
}

// unrecorded leaves out what is published for good: that is looked for in the tree.
func unrecorded(versions []*version) []*version {
	return slices.DeleteFunc(slices.Clone(versions), func(v *version) bool { return v.stage.recorded })
}

// in returns the versions of all paths directly in a directory.
func (s *stages) in(dir lock.Name) []*version {
	if s.count.Load() == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return unrecorded(s.byDir[dir])
}

// below reports whether anything is prepared below a directory.
func (s *stages) below(dir lock.Name) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for d := range s.byDir {
		if d.Within(dir) {
			return true
		}
	}
	return false
}

// of returns what a hold has prepared, sorted by path.
func (s *stages) of(token lock.Token) (versions []*version, recorded bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.byToken[token]
	if st == nil {
		return nil, false
	}
	for _, v := range st.versions {
		versions = append(versions, v)
	}
	slices.SortFunc(versions, func(a, b *version) int { return strings.Compare(string(a.path), string(b.path)) })
	return versions, st.recorded
}

// drop forgets what a hold has prepared and discards what was not published of it.
func (s *stages) drop(token lock.Token) error {
	s.mu.Lock()
	var versions []*version
	if st := s.byToken[token]; st != nil {
		for _, v := range st.versions {
			s.unlinkLocked(v)
			versions = append(versions, v)
		}
		delete(s.byToken, token)
	}
	s.mu.Unlock()
	return discard(versions)
}

// any reports whether some hold has prepared something, or had.
func (s *stages) any() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byToken) > 0
}

// record notes that what a hold has prepared is published for good, though not all of it is in place.
func (s *stages) record(token lock.Token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.byToken[token]; st != nil {
		st.recorded = true
	}
	s.unfinished.Store(true)
}

// ended returns the titles that do not stand any more.
func (s *stages) ended(stands func(lock.Title) bool) []lock.Title {
	s.mu.Lock()
	var titles []lock.Title
	for _, st := range s.byToken {
		titles = append(titles, st.title)
	}
	s.mu.Unlock()
	return slices.DeleteFunc(titles, stands)
}

// seen returns the path as this session sees it, if it speaks for a hold that has prepared a change of it.
func (c *client) seen(n lock.Name) (*version, bool) {
	for _, v := range c.server.stages.at(n) {
		if c.sees(v) {
			return v, true
		}
	}
	return nil, false
}

func (c *client) sees(v *version) bool {
	h, err := c.locks.SpeaksFor(v.stage.title.Lock)
	return err == nil && h.Token == v.stage.title.Token
}

// info describes a version under its own name.
func (v *version) info() (fs.FileInfo, error) {
	if v.upload == nil {
		return nil, &fs.PathError{Op: "stat", Path: string(v.path), Err: fs.ErrNotExist}
	}
	info, err := v.upload.Stat()
	if err != nil {
		return nil, err
	}
	return namedInfo{info, v.path.Base()}, nil
}

// open opens a version to be sent.
func (v *version) open(o files.DownloadOptions) (source, error) {
	if v.upload == nil {
		return nil, &fs.PathError{Op: "download", Path: string(v.path), Err: fs.ErrNotExist}
	}
	return v.upload.Download(string(v.path), o)
}

// lstatFile describes a file or directory of the tree, or what this session has prepared in its place.
func (c *client) lstatFile(n lock.Name) (fs.FileInfo, error) {
	for range looks {
		v, ok := c.seen(n)
		if !ok {
			break
		}
		if info, err := v.info(); !errors.Is(err, files.ErrDone) {
			return info, err
		}
	}
	return c.tree().Lstat(string(n))
}

// looks is how often a version is looked for that was replaced since it was found. One that is over all the
// same is being published: it is in the tree.
const looks = 3

// openFile opens a file of the tree, or what this session has prepared in its place.
func (c *client) openFile(n lock.Name, o files.DownloadOptions) (source, error) {
	for range looks {
		v, ok := c.seen(n)
		if !ok {
			break
		}
		if from, err := v.open(o); !errors.Is(err, files.ErrDone) {
			return from, err
		}
	}
	return c.tree().Download(string(n), o)
}

// amend puts what this session has prepared in a directory in the place of what is on disk.
func (c *client) amend(dir lock.Name, byName map[string]entry) {
	for _, v := range c.server.stages.in(dir) {
		if !c.sees(v) {
			continue
		}
		if info, err := v.info(); err == nil {
			byName[v.path.Base()] = shown(v.path.Base(), info)
		} else if errors.Is(err, fs.ErrNotExist) {
			delete(byName, v.path.Base())
		}
	}
}

// old is the content that an upload goes on with, if it is not that on disk.
func (c *client) old(n lock.Name) *files.Old {
	if v, ok := c.seen(n); ok {
		return &files.Old{Upload: v.upload}
	}
	return nil
}
