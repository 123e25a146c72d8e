package driver

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/ftplockd/ftplockd/files"
	"github.com/ftplockd/ftplockd/lock"
)

// A lock is a directory: its holder stores, renames and removes files in it, and others may look. Where locks have
// directories, that is where the files lie. Otherwise they lie in a hidden directory beside the lock, with the token of the hold
// in its name, which is made when the holder puts the first thing into the lock. If the hold ends otherwise than by RMD, what is
// in it is moved aside.

// insides knows the hidden directories. Each has a record in the state directory, made before it, so that one whose lock ended
// while nobody looked is found.
type insides struct {
	records  *os.Root
	changing sync.Mutex // held while one is made, adopted or moved aside, disk access included, so that it is done once

	mu      sync.Mutex
	byName  map[lock.Name]lock.Token
	byToken map[lock.Token]inside
}

// inside is a hidden directory.
type inside struct {
	lock   lock.Name
	holder string // the account
	disk   string // where in the tree it is
}

// openInsides reads the records in dir, made if it is missing.
func openInsides(dir string) (*insides, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	in := &insides{records: root, byName: make(map[lock.Name]lock.Token), byToken: make(map[lock.Token]inside)}
	entries, err := fs.ReadDir(root.FS(), ".")
	for _, e := range entries {
		token, nerr := strconv.ParseUint(e.Name(), 10, 64)
		text, rerr := root.ReadFile(e.Name())
		parts := strings.Split(string(text), "\x00")
		if nerr == nil && len(parts) == 3 {
			i := inside{lock.Name(parts[0]), parts[1], parts[2]}
			in.byName[i.lock], in.byToken[lock.Token(token)] = lock.Token(token), i
		}
		err = errors.Join(err, rerr)
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return in, nil
}

func (in *insides) close() error { return in.records.Close() }

// of returns the token in the name of a lock's hidden directory.
func (in *insides) of(n lock.Name) (lock.Token, bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	token, ok := in.byName[n]
	return token, ok
}

// none reports whether no lock has one, as is so nearly always.
func (in *insides) none() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.byToken) == 0
}

// all returns the locks that have a hidden directory, by token.
func (in *insides) all() map[lock.Token]inside {
	in.mu.Lock()
	defer in.mu.Unlock()
	return maps.Clone(in.byToken)
}

func (in *insides) base(token lock.Token) (string, bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	i, ok := in.byToken[token]
	return i.lock.Base(), ok
}

// record notes a hidden directory that is about to be made.
func (in *insides) record(token lock.Token, i inside) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	text := string(i.lock) + "\x00" + i.holder + "\x00" + i.disk
	if err := in.records.WriteFile(strconv.FormatUint(uint64(token), 10), []byte(text), 0o600); err != nil {
		return err
	}
	in.byName[i.lock], in.byToken[token] = token, i
	return nil
}

// moved follows the rename of a hidden directory: those in it go with it.
func (in *insides) moved(from, to string) error {
	var errs []error
	for token, i := range in.all() {
		if rest, ok := strings.CutPrefix(i.disk, from+"/"); ok {
			i.disk = to + "/" + rest
			errs = append(errs, in.record(token, i))
		}
	}
	return errors.Join(errs...)
}

// forget ends a record: the directory is gone.
func (in *insides) forget(token lock.Token) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	n := in.byToken[token].lock
	if in.byName[n] == token {
		delete(in.byName, n)
	}
	delete(in.byToken, token)
	err := in.records.Remove(strconv.FormatUint(uint64(token), 10))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// disk is where in the tree what clients know by a name lies.
func (s *Server) disk(n lock.Name) string {
	if n == "/" || s.insides.none() {
		return string(n)
	}
	return path.Join(s.diskDir(n.Parent()), n.Base())
}

// diskDir is where in the tree what lies in a directory, or in a lock, lies.
func (s *Server) diskDir(n lock.Name) string {
	if n == "/" || s.insides.none() {
		return string(n)
	}
	if token, ok := s.insides.of(n); ok && s.stands(n, token) {
		return files.Inside(s.diskDir(n.Parent()), uint64(token))
	}
	return s.disk(n)
}

// named is the name that clients know something in the tree by: the opposite of disk.
func (s *Server) named(disk string) lock.Name {
	elements := strings.Split(disk, "/")
	for i, e := range elements {
		if !files.Hidden(e) {
			continue
		}
		token, _ := strconv.ParseUint(e[strings.LastIndexByte(e, '-')+1:], 10, 64)
		if base, ok := s.insides.base(lock.Token(token)); ok {
			elements[i] = base
		}
	}
	return lock.Name(strings.Join(elements, "/"))
}

// stands reports whether a hold of the name with the token does.
func (s *Server) stands(n lock.Name, token lock.Token) bool {
	status, held := s.table.Get(n)
	return held && status.Holds[0].Token == token
}

// openInside sees to it that the locks that n lies in have somewhere to put things. The session may write there.
func (c *client) openInside(n lock.Name) error {
	if c.server.directories {
		return nil
	}
	c.server.insides.changing.Lock()
	defer c.server.insides.changing.Unlock()
	return c.openInsides(n.Parent())
}

func (c *client) openInsides(n lock.Name) error {
	if n == "/" {
		return nil
	}
	if err := c.openInsides(n.Parent()); err != nil {
		return err
	}
	status, held := c.table().Get(n)
	if !held {
		return nil
	}
	token := status.Holds[0].Token
	if known, ok := c.server.insides.of(n); ok && known == token {
		return nil
	}
	disk := files.Inside(c.server.diskDir(n.Parent()), uint64(token))
	if err := c.server.insides.record(token, inside{n, status.Holds[0].Owner.Account, disk}); err != nil {
		return err
	}
	err := c.server.tree.MkdirLasting(disk, 0o777)
	if err == nil || errors.Is(err, fs.ErrExist) || errors.Is(err, files.ErrNotDurable) {
		return nil
	}
	return errors.Join(err, c.server.insides.forget(token))
}

// closeInside removes the hidden directory of a lock that is to be given back. It fails with lock.ErrNotEmpty if there is
// something in it.
func (s *Server) closeInside(n lock.Name) error {
	if s.insides.none() {
		return nil
	}
	s.insides.changing.Lock()
	defer s.insides.changing.Unlock()
	token, ok := s.insides.of(n)
	if !ok || !s.stands(n, token) {
		return nil
	}
	err := s.tree.RemoveDir(s.diskDir(n))
	switch {
	case err == nil || errors.Is(err, fs.ErrNotExist):
		return s.insides.forget(token)
	case isNotEmpty(err):
		return lock.ErrNotEmpty
	}
	return err
}

// adopt gives the hidden directory of a lock that was adopted to its new hold. The caller has kept others from changing it
// since before the grant.
func (s *Server) adopt(n lock.Name, holder string, from, to lock.Token) {
	if token, ok := s.insides.of(n); !ok || token != from {
		return
	}
	parent := s.diskDir(n.Parent())
	was, disk := files.Inside(parent, uint64(from)), files.Inside(parent, uint64(to))
	err := s.insides.record(to, inside{n, holder, disk})
	if err == nil {
		err = errors.Join(s.tree.Rename(was, disk), s.insides.moved(was, disk), s.insides.forget(from))
	}
	if err != nil {
		s.log.Error("what lies in an adopted lock is not seen", "lock", string(n), "token", to, "err", err)
	}
}

// leaveEnded moves what locks have left aside whose holds have ended otherwise than by RMD. Members come before the locks
// that they lie in.
func (s *Server) leaveEnded() {
	if s.insides.none() {
		return
	}
	s.insides.changing.Lock()
	defer s.insides.changing.Unlock()
	all := s.insides.all()
	tokens := slices.SortedFunc(maps.Keys(all), func(a, b lock.Token) int { return all[b].lock.Depth() - all[a].lock.Depth() })
	for _, token := range tokens {
		if !s.stands(all[token].lock, token) {
			s.leave(all[token], token)
		}
	}
}

func (s *Server) leave(i inside, token lock.Token) {
	err := s.tree.RemoveDir(i.disk)
	if isNotEmpty(err) {
		var to string
		if to, err = s.tree.Aside(i.disk, string(i.lock), i.holder, uint64(token)); err == nil {
			s.log.Warn("what was in a lock was moved aside", "lock", string(i.lock), "token", token, "leftovers", to)
			s.record(lock.Publication{Lock: i.lock, Token: token, File: lock.Name(to), Note: "left over"})
		}
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = s.insides.forget(token)
	}
	if err != nil {
		s.log.Error("what was in a lock could not be moved aside", "lock", string(i.lock), "token", token, "err", err)
	}
}
