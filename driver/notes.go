package driver

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strconv"
	"sync"

	"github.com/ftplockd/ftplockd/lock"
)

// Limits of the notes of one hold. A note says who works on what and why; it is no file store.
const (
	maxNotes    = 32
	maxNoteSize = 64 << 10
)

var (
	errNoteTooLarge = &refusal{code: 552, text: fmt.Sprintf("a note in a lock holds at most %d bytes", maxNoteSize)}
	errTooManyNotes = &refusal{code: 552, text: fmt.Sprintf("a lock holds at most %d notes", maxNotes)}
)

// notes keeps what holders write into their locks (owner, pid, reason). A note belongs to
// one hold, told by its token: it is shown inside the lock while that hold stands and is
// never seen again afterwards, also if its file was not swept yet.
// The files lie in the state directory, so a lock's directory on disk stays empty.
type notes struct {
	root *os.Root

	writing sync.Mutex // held while a note is written, disk access included, so that the number of notes stays within its limit

	mu      sync.Mutex
	written map[lock.Token]struct{} // which holds have notes: most have none, and their end costs no look at the disk
}

// openNotes uses dir, made if it is missing.
func openNotes(dir string) (*notes, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	n := &notes{root: root, written: make(map[lock.Token]struct{})}
	tokens, err := n.tokens()
	for _, t := range tokens {
		n.written[t] = struct{}{}
	}
	return n, errors.Join(err, closeIf(err, root))
}

func closeIf(err error, root *os.Root) error {
	if err == nil {
		return nil
	}
	return root.Close()
}

func (n *notes) Close() error { return n.root.Close() }

func noteDir(t lock.Token) string { return strconv.FormatUint(uint64(t), 10) }

// noteFile is the name of a note on disk. PathEscape leaves "." and ".." alone; neither can be a
// note, since FTP paths are cleaned before they come here.
func noteFile(t lock.Token, name string) string { return noteDir(t) + "/" + url.PathEscape(name) }

// put writes a note whole: a reader sees the old text or the new one.
// It fails with errNoteTooLarge or errTooManyNotes, or as the disk does.
func (n *notes) put(t lock.Token, name string, text []byte) error {
	if len(text) > maxNoteSize {
		return errNoteTooLarge
	}
	n.mu.Lock()
	n.written[t] = struct{}{}
	n.mu.Unlock()
	n.writing.Lock()
	defer n.writing.Unlock()
	if err := n.root.Mkdir(noteDir(t), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if have, err := n.list(t); err != nil {
		return err
	} else if len(have) >= maxNotes && !slices.ContainsFunc(have, func(f fs.FileInfo) bool { return f.Name() == name }) {
		return errTooManyNotes
	}
	temporary := noteDir(t) + "/%%" + rand.Text() // no escaped name has two percent signs in a row
	if err := n.root.WriteFile(temporary, text, 0o600); err != nil {
		return errors.Join(err, n.root.Remove(temporary))
	}
	return n.root.Rename(temporary, noteFile(t, name))
}

// get reads a note; fs.ErrNotExist if there is none.
func (n *notes) get(t lock.Token, name string) ([]byte, fs.FileInfo, error) {
	info, err := n.stat(t, name)
	if err != nil {
		return nil, nil, err
	}
	text, err := n.root.ReadFile(noteFile(t, name))
	return text, info, err
}

func (n *notes) stat(t lock.Token, name string) (fs.FileInfo, error) {
	info, err := n.root.Stat(noteFile(t, name))
	if err != nil {
		return nil, err
	}
	return namedInfo{info, name}, nil
}

func (n *notes) remove(t lock.Token, name string) error { return n.root.Remove(noteFile(t, name)) }

// list names the notes of a hold, sorted; none is no error.
func (n *notes) list(t lock.Token) ([]fs.FileInfo, error) {
	dir, err := n.root.Open(noteDir(t))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	entries, err := dir.Readdir(-1)
	if err != nil {
		return nil, err
	}
	var infos []fs.FileInfo
	for _, e := range entries {
		if name, err := url.PathUnescape(e.Name()); err == nil {
			infos = append(infos, namedInfo{e, name})
		}
	}
	slices.SortFunc(infos, func(a, b fs.FileInfo) int { return cmp.Compare(a.Name(), b.Name()) })
	return infos, nil
}

// drop removes all notes of a hold that has ended.
func (n *notes) drop(t lock.Token) error {
	n.mu.Lock()
	_, any := n.written[t]
	delete(n.written, t)
	n.mu.Unlock()
	if !any {
		return nil
	}
	return n.root.RemoveAll(noteDir(t))
}

// any reports whether some hold has notes.
func (n *notes) any() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.written) > 0
}

// sweep drops the notes of every token that does not stand any more. A hold that is granted
// while it runs keeps its notes: what stands is asked after the directory was read.
func (n *notes) sweep(standing func() map[lock.Token]bool) error {
	tokens, err := n.tokens()
	if err != nil || len(tokens) == 0 {
		return err
	}
	stands := standing()
	var errs []error
	for _, t := range tokens {
		if !stands[t] {
			errs = append(errs, n.drop(t))
		}
	}
	return errors.Join(errs...)
}

// tokens lists the holds that have notes on disk.
func (n *notes) tokens() ([]lock.Token, error) {
	dir, err := n.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	var tokens []lock.Token
	for _, name := range names {
		if t, err := strconv.ParseUint(name, 10, 64); err == nil && name == noteDir(lock.Token(t)) {
			tokens = append(tokens, lock.Token(t))
		}
	}
	return tokens, err
}

// namedInfo is a FileInfo under the name that the client knows.
type namedInfo struct {
	fs.FileInfo
	name string
}

func (i namedInfo) Name() string { return i.name }

// note is what an upload into a lock is received in.
type note struct {
	text   bytes.Buffer
	client *client
	lock   lock.Name
	token  lock.Token
	name   string
}

// Durable implements receiver.
func (n *note) Durable() bool { return false }

// Sync implements receiver.
func (n *note) Sync() error { return nil }

// Discard implements receiver.
func (n *note) Discard() error { return nil }

// Publish writes the note if the hold that it is for still stands, and that waits for it.
func (n *note) Publish() error {
	c := n.client
	return c.table().Publish(c.server.context, n.lock, n.token, func() error {
		return c.server.notes.put(n.token, n.name, n.text.Bytes())
	})
}

// Write refuses what no note holds, before it is all in memory.
func (n *note) Write(p []byte) (int, error) {
	if n.text.Len()+len(p) > maxNoteSize {
		return 0, errNoteTooLarge
	}
	return n.text.Write(p)
}

// ReadFrom implements receiver.
func (n *note) ReadFrom(r io.Reader) (int64, error) { return io.Copy(struct{ io.Writer }{n}, r) }

// noteHold finds the hold whose notes this session may write.
func (c *client) noteHold(n lock.Name, around lock.Status) (lock.Hold, error) {
	if n.Parent() != around.Name {
		return lock.Hold{}, errInsideLock
	}
	h, err := c.locks.SpeaksFor(around.Name)
	switch {
	case err != nil:
		return lock.Hold{}, errNotHolder
	case !c.account.Write:
		return lock.Hold{}, errReadOnly
	}
	return h, nil
}

// readNote returns the text of a note, or false if the name is none.
func (c *client) readNote(n lock.Name) ([]byte, bool) {
	s, inside := c.lockAround(n)
	if !inside || n.Parent() != s.Name {
		return nil, false
	}
	for _, h := range s.Holds {
		if text, _, err := c.server.notes.get(h.Token, n.Base()); err == nil {
			return text, true
		}
	}
	return nil, false
}
