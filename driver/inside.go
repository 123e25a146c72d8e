package driver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// A lock is a directory: its holder stores, renames and removes files in it, and others may look. Where locks have
// directories, that is where the files lie. Otherwise they lie in a hidden directory beside the lock, with the token of the hold
// in its name, which is made when the holder puts the first thing into the lock. If the hold ends otherwise than by RMD, what is
// in it is moved aside.

// Insides are the hidden directories. Each has a record in the state directory, made before it, so that one whose lock ended
// in a crash is found.
type Insides struct {
	tree    Tree
	log     *slog.Logger
	records *os.Root
	sync    func(*os.File) error // (*os.File).Sync, but for tests

	mu       sync.Mutex // never held while the disk is waited for
	byName   map[lock.Name]lock.Token
	byToken  map[lock.Token]inside
	changing map[lock.Name]chan struct{} // closed when the change is over
}

// inside is a hidden directory.
type inside struct {
	lock   lock.Name
	holder string // the account
	disk   string // where in the tree it is
	synced bool   // record and directory survive a loss of power
}

// OpenInsides reads the records in dir, made if it is missing.
func OpenInsides(tree Tree, dir string, log *slog.Logger) (*Insides, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	in := &Insides{tree: tree, log: log, records: root, sync: (*os.File).Sync, byName: make(map[lock.Name]lock.Token), byToken: make(map[lock.Token]inside), changing: make(map[lock.Name]chan struct{})}
	entries, err := fs.ReadDir(root.FS(), ".")
	for _, e := range entries {
		token, nerr := strconv.ParseUint(e.Name(), 10, 64)
		text, rerr := root.ReadFile(e.Name())
		parts := strings.Split(string(text), "\x00")
		if nerr == nil && len(parts) == 3 {
			i := inside{lock: lock.Name(parts[0]), holder: parts[1], disk: parts[2]}
			in.byName[i.lock], in.byToken[lock.Token(token)] = lock.Token(token), i
		}
		err = errors.Join(err, rerr)
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return in, nil
}

// Close gives back what is held open.
func (in *Insides) Close() error { return in.records.Close() }

// Store is a store of locks without directories, under which what lies in a lock ends with its hold: that is one step for
// everybody else, since the table lets nobody change the name meanwhile.
func (in *Insides) Store(store lock.Store) lock.Store { return insideStore{store, in} }

type insideStore struct {
	lock.Store
	insides *Insides
}

// Commit implements lock.Store. A release fails with lock.ErrNotEmpty if something lies in the lock. What lies in one that ends
// otherwise is moved aside, when the end is recorded: a store that refuses it, since another server has taken over, say, leaves the
// files where they are. An adopted lock keeps what lies in it.
func (s insideStore) Commit(ctx context.Context, change lock.Change) (lock.Token, error) {
	was, ok := s.insides.of(change.Name)
	if !ok {
		return s.Store.Commit(ctx, change)
	}
	ends := len(change.Holds) == 0
	if ends {
		note, err := s.insides.leave(was, change.Cause == lock.CauseRelease)
		if err != nil {
			return 0, err
		}
		change.Note = strings.TrimSpace(change.Note + " " + note)
	}
	token, err := s.Store.Commit(ctx, change)
	switch {
	case err != nil:
	case ends:
		if err := s.insides.end(was); err != nil {
			s.insides.log.Error("what was in a lock could not be moved aside; it is tried again", "lock", string(change.Name), "token", was, "err", err)
		}
	case change.Cause == lock.CauseAdopt:
		s.insides.adopt(change.Name, change.Holds[0].Owner.Account, was, token)
	}
	return token, err
}

// change waits until nobody makes, adopts or moves aside the hidden directory of a lock, disk access included, and keeps others
// from it until done is called. Other locks do not wait.
func (in *Insides) change(n lock.Name) (done func()) {
	over := make(chan struct{})
	for {
		in.mu.Lock()
		before := in.changing[n]
		if before == nil {
			in.changing[n] = over
		}
		in.mu.Unlock()
		if before == nil {
			break
		}
		<-before
	}
	return func() {
		in.mu.Lock()
		defer in.mu.Unlock()
		delete(in.changing, n)
		close(over)
	}
}

// of returns the token in the name of a lock's hidden directory.
func (in *Insides) of(n lock.Name) (lock.Token, bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	token, ok := in.byName[n]
	return token, ok
}

// none reports whether no lock has one, as is so nearly always.
func (in *Insides) none() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.byToken) == 0
}

// all returns the locks that have a hidden directory, by token.
func (in *Insides) all() map[lock.Token]inside {
	in.mu.Lock()
	defer in.mu.Unlock()
	return maps.Clone(in.byToken)
}

func (in *Insides) inside(token lock.Token) (inside, bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	i, ok := in.byToken[token]
	return i, ok
}

// record notes a hidden directory that is about to be made.
func (in *Insides) record(token lock.Token, i inside) error {
	text := string(i.lock) + "\x00" + i.holder + "\x00" + i.disk
	i.synced = in.tree.Durable()
	if err := in.write(strconv.FormatUint(uint64(token), 10), text, i.synced); err != nil {
		return err
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.byName[i.lock], in.byToken[token] = token, i
	return nil
}

// write makes a record. If sync is true it survives a loss of power: the server finds what was acknowledged in a lock by it.
func (in *Insides) write(name, text string, sync bool) error {
	f, err := in.records.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if sync && err == nil {
		err = in.sync(f)
	}
	if err := errors.Join(err, f.Close()); err != nil || !sync {
		return err
	}
	dir, err := in.records.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(in.sync(dir), dir.Close())
}

// moved follows the rename of a hidden directory: those in it go with it.
func (in *Insides) moved(from, to string) error {
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
func (in *Insides) forget(token lock.Token) error {
	in.mu.Lock()
	n := in.byToken[token].lock
	if in.byName[n] == token {
		delete(in.byName, n)
	}
	delete(in.byToken, token)
	in.mu.Unlock()
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
		token, ok := files.InsideToken(e)
		if !ok {
			continue
		}
		if inside, ok := s.insides.inside(lock.Token(token)); ok {
			elements[i] = inside.lock.Base()
		}
	}
	return lock.Name(strings.Join(elements, "/"))
}

// stands reports whether a hold of the name with the token does.
func (s *Server) stands(n lock.Name, token lock.Token) bool {
	status, held := s.table.Get(n)
	return held && slices.ContainsFunc(status.Holds, func(h lock.Hold) bool { return h.Token == token })
}

// openInside sees to it that the locks that n lies in have somewhere to put things. The session may write there.
func (c *client) openInside(n lock.Name) error {
	in := n.Parent()
	if c.server.directories || in == "/" {
		return nil
	}
	if err := c.openInside(in); err != nil || !c.table().Held(in) {
		return err
	}
	defer c.server.insides.change(in)()
	status, held := c.table().Get(in)
	if !held {
		return nil
	}
	token := status.Holds[0].Token
	disk := files.Inside(c.server.diskDir(in.Parent()), uint64(token))
	known, ok := c.server.insides.of(in)
	before, _ := c.server.insides.inside(token)
	recorded := ok && known == token && (before.synced || !c.server.tree.Durable())
	if !recorded {
		if err := c.server.insides.record(token, inside{lock: in, holder: status.Holds[0].Owner.Account, disk: disk}); err != nil {
			return err
		}
	}
	err := c.server.tree.Mkdir(disk, 0o777)
	if err == nil || !recorded && errors.Is(err, fs.ErrExist) {
		err = c.server.tree.Last(disk) // or the files in it would go with it
	}
	if err == nil || errors.Is(err, fs.ErrExist) || errors.Is(err, files.ErrNotDurable) {
		return nil
	}
	return errors.Join(err, c.server.insides.forget(token))
}

// leave removes the hidden directory of a hold that is to end, if nothing lies in it: it is made again when it is needed. Otherwise
// that is lock.ErrNotEmpty for a release, and the note says so for another end.
func (in *Insides) leave(token lock.Token, released bool) (note string, err error) {
	i, ok := in.inside(token)
	if !ok {
		return "", nil
	}
	defer in.change(i.lock)()
	err = in.tree.RemoveDir(i.disk)
	switch {
	case isNotEmpty(err) && released:
		return "", lock.ErrNotEmpty
	case isNotEmpty(err):
		return fmt.Sprintf("what was in it is left over, ID %d", token), nil
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	}
	return "", err
}

// end removes the hidden directory of a hold that has ended, or moves it aside if something lies in it.
func (in *Insides) end(token lock.Token) error {
	i, ok := in.inside(token)
	if !ok {
		return nil
	}
	defer in.change(i.lock)()
	if i, ok = in.inside(token); !ok { // another end was quicker
		return nil
	}
	err := in.tree.RemoveDir(i.disk)
	if isNotEmpty(err) {
		var to string
		if to, err = in.tree.Aside(i.disk, string(i.lock), i.holder, uint64(token)); err == nil {
			in.log.Warn("what was in a lock was moved aside", "lock", string(i.lock), "token", token, "holder", i.holder, "leftovers", to)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return in.forget(token)
}

// adopt gives the hidden directory of a lock that was adopted to its new hold.
func (in *Insides) adopt(n lock.Name, holder string, from, to lock.Token) {
	defer in.change(n)()
	before, _ := in.inside(from)
	was := before.disk
	disk := files.Inside(path.Dir(was), uint64(to))
	err := in.record(to, inside{lock: n, holder: holder, disk: disk})
	if err == nil {
		err = errors.Join(in.tree.Rename(was, disk), in.moved(was, disk), in.forget(from))
	}
	if err != nil {
		in.log.Error("what lies in an adopted lock is not seen", "lock", string(n), "token", to, "err", err)
	}
}

// endStale moves aside what locks have left whose end was cut short, by a crash say. Members come before the locks that they lie in.
// A server that may not know which locks stand leaves that to the one that does.
func (s *Server) endStale() error {
	if s.table.Valid() != nil {
		return nil
	}
	all := s.insides.all()
	tokens := slices.SortedFunc(maps.Keys(all), func(a, b lock.Token) int { return all[b].lock.Depth() - all[a].lock.Depth() })
	var errs []error
	for _, token := range tokens {
		if !s.stands(all[token].lock, token) {
			errs = append(errs, s.insides.end(token))
		}
	}
	return errors.Join(errs...)
}
