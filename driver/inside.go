package driver

import (
	"errors"
	"io/fs"
	"os"
	"path"
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
	records *os.Root

	mu      sync.Mutex
	byName  map[lock.Name]lock.Token
	byToken map[lock.Token]lock.Name
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
	in := &insides{records: root, byName: make(map[lock.Name]lock.Token), byToken: make(map[lock.Token]lock.Name)}
	entries, err := fs.ReadDir(root.FS(), ".")
	for _, e := range entries {
		token, nerr := strconv.ParseUint(e.Name(), 10, 64)
		name, rerr := root.ReadFile(e.Name())
		if nerr == nil && rerr == nil {
			in.byName[lock.Name(name)], in.byToken[lock.Token(token)] = lock.Token(token), lock.Name(name)
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

// all returns the locks that have a hidden directory, by token.
func (in *insides) all() map[lock.Token]lock.Name {
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.byToken) == 0 {
		return nil // nearly always
	}
	all := make(map[lock.Token]lock.Name, len(in.byToken))
	for token, n := range in.byToken {
		all[token] = n
	}
	return all
}

func (in *insides) base(token lock.Token) (string, bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	n, ok := in.byToken[token]
	return n.Base(), ok
}

// record notes a hidden directory that is about to be made.
func (in *insides) record(n lock.Name, token lock.Token) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if err := in.records.WriteFile(strconv.FormatUint(uint64(token), 10), []byte(n), 0o600); err != nil {
		return err
	}
	in.byName[n], in.byToken[token] = token, n
	return nil
}

// forget ends a record: the directory is gone.
func (in *insides) forget(token lock.Token) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	n := in.byToken[token]
	if in.byName[n] == token {
		delete(in.byName, n)
	}
	delete(in.byToken, token)
	return in.records.Remove(strconv.FormatUint(uint64(token), 10))
}

// disk is where in the tree what clients know by a name lies.
func (s *Server) disk(n lock.Name) string {
	if n == "/" {
		return "/"
	}
	return path.Join(s.diskDir(n.Parent()), n.Base())
}

// diskDir is where in the tree what lies in a directory, or in a lock, lies.
func (s *Server) diskDir(n lock.Name) string {
	if n == "/" {
		return "/"
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
	if c.server.directories || n == "/" {
		return nil
	}
	around := n.Parent()
	if around == "/" {
		return nil
	}
	if err := c.openInside(around); err != nil {
		return err
	}
	status, held := c.table().Get(around)
	if !held {
		return nil
	}
	token := status.Holds[0].Token
	if known, ok := c.server.insides.of(around); ok && known == token {
		return nil
	}
	if err := c.server.insides.record(around, token); err != nil {
		return err
	}
	err := c.server.tree.MkdirLasting(files.Inside(c.server.diskDir(around.Parent()), uint64(token)), 0o777)
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	return err
}

// closeInside removes the hidden directory of a lock that is to be given back. It fails with lock.ErrNotEmpty if there is
// something in it.
func (s *Server) closeInside(n lock.Name) error {
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

// adopt gives the hidden directory of a lock that was adopted to its new hold.
func (s *Server) adopt(n lock.Name, from, to lock.Token) {
	if token, ok := s.insides.of(n); !ok || token != from {
		return
	}
	parent := s.diskDir(n.Parent())
	err := s.insides.record(n, to)
	if err == nil {
		err = errors.Join(s.tree.Rename(files.Inside(parent, uint64(from)), files.Inside(parent, uint64(to))), s.insides.forget(from))
	}
	if err != nil {
		s.log.Error("what lies in an adopted lock is not seen", "lock", string(n), "token", to, "err", err)
	}
}

// leave moves what a lock has left aside, if its hold ended otherwise than by RMD.
func (s *Server) leave(n lock.Name, token lock.Token) {
	if _, ok := s.insides.base(token); !ok || s.stands(n, token) {
		return
	}
	from := files.Inside(s.diskDir(n.Parent()), uint64(token))
	err := s.tree.RemoveDir(from)
	if isNotEmpty(err) {
		var to string
		if to, err = s.tree.Aside(from, string(n), uint64(token)); err == nil {
			s.log.Warn("what was in a lock was moved aside", "lock", string(n), "token", token, "leftovers", to)
		}
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = s.insides.forget(token)
	}
	if err != nil {
		s.log.Error("what was in a lock could not be moved aside", "lock", string(n), "token", token, "err", err)
	}
}

// leaveEnded moves aside what locks have left that ended while nobody looked.
func (s *Server) leaveEnded() {
	for token, n := range s.insides.all() {
		s.leave(n, token)
	}
}
