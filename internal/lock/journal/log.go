package journal

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// ErrFailed is matched by what Commit returns after the journal could not be synced once. The kernel may
// have dropped what it could not write and call the next sync a success, so the store believes no
// further one: it refuses every change, and the server is to be restarted.
var ErrFailed = errors.New("the journal could not be synced to disk; no change is accepted until a restart")

// tokenBlock is how many tokens one synced line reserves: so many are skipped by a crash at most.
const tokenBlock = 4096

// journalFile is what the log needs of its file; the tests make it fail.
type journalFile interface {
	WriteAt(b []byte, offset int64) (int, error)
	Truncate(size int64) error
	Sync() error // the data, and of the metadata what is needed to read it
	Close() error
}

// log is the append-only end of the journal: it numbers lines with tokens, writes and syncs them.
// It is the one owner of the open file and of the token sequence.
type log struct {
	step func(string) // see testHooks

	mu       sync.Mutex
	file     journalFile
	next     lock.Token // the next token to be given
	reserved lock.Token // tokens above it must not be granted yet
	torn     bool       // something may stand behind the end
	owed     map[lock.Name][]byte
	buffer   []byte

	end    atomic.Int64 // how many bytes of whole lines are written; changed with mu held
	broken atomic.Bool  // failed is set

	syncMu  sync.Mutex
	changed sync.Cond
	syncing bool
	synced  int64
	failed  error
}

// newLog returns a log that goes on at end, all of it synced, with tokens above last. Those up to
// reserved have been announced.
func newLog(file journalFile, end int64, last, reserved lock.Token, step func(string)) *log {
	l := &log{
		file: file, next: last + 1, reserved: reserved, synced: end, step: step,
		owed: make(map[lock.Name][]byte),
	}
	l.changed.L = &l.syncMu
	l.end.Store(end)
	return l
}

// append gives the line the next token (and all of its holds that have none) and writes it. It returns
// how far the log must be synced for the line to last. After an error nothing has changed.
func (l *log) append(entry *line) (end int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.readyLocked(); err != nil {
		return 0, err
	}
	l.step("append")
	if err := l.reserveLocked(); err != nil {
		return 0, err
	}
	number(entry, l.next)
	if err := l.writeLocked(entry); err != nil {
		return 0, err
	}
	l.next++
	l.step("appended")
	return l.end.Load(), nil
}

// appendOwed is append for what has happened already, such as a directory that is gone: if it cannot be
// written now (the disk is full), it will be before anything else is. Only the last line of a
// name is kept that long. Without the line a crash brings a released lock back, until its age ends.
func (l *log) appendOwed(entry *line) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.step("append")
	reserved := l.readyLocked()
	if reserved == nil {
		reserved = l.reserveLocked()
	}
	number(entry, l.next)
	l.next++
	if reserved == nil {
		reserved = l.writeLocked(entry)
	}
	if reserved != nil {
		l.owed[entry.Name] = appendLine(nil, entry)
	}
	l.step("appended")
	return reserved
}

// write appends a line that has its token already or needs none.
func (l *log) write(entry *line) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.readyLocked(); err != nil {
		return err
	}
	return l.writeLocked(entry)
}

// take gives out a token without a line.
func (l *log) take() (lock.Token, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.readyLocked(); err != nil {
		return 0, err
	}
	if err := l.reserveLocked(); err != nil {
		return 0, err
	}
	l.next++
	return l.next - 1, nil
}

func number(entry *line, token lock.Token) {
	entry.Token = token
	for i := range entry.Holds {
		if entry.Holds[i].Token == 0 {
			entry.Holds[i].Token = token
		}
	}
}

// readyLocked refuses a failed log, and clears away what a failed write left.
func (l *log) readyLocked() error {
	if l.broken.Load() {
		return l.failure()
	}
	if l.torn {
		if err := l.file.Truncate(l.end.Load()); err != nil {
			return fmt.Errorf("journal: %w", bare(err))
		}
		l.torn = false
	}
	return nil
}

// reserveLocked announces the next block of tokens, synced whether the store is durable or not: a token must
// not be granted twice, whatever is lost. It syncs with mu held, once in so many changes, since
// nobody can go on without.
func (l *log) reserveLocked() error {
	if l.next <= l.reserved {
		return nil
	}
	upTo := l.next + tokenBlock - 1
	if err := l.writeLocked(&line{Event: eventTokens, Reserved: upTo}); err != nil {
		return err
	}
	if err := l.sync(l.end.Load()); err != nil {
		return err
	}
	l.reserved = upTo
	return nil
}

// writeLocked writes the line behind those that are owed, in one call.
func (l *log) writeLocked(entry *line) error {
	l.buffer = l.buffer[:0]
	for _, owed := range l.owed {
		l.buffer = append(l.buffer, owed...)
	}
	l.buffer = appendLine(l.buffer, entry)
	end := l.end.Load()
	if _, err := l.file.WriteAt(l.buffer, end); err != nil {
		l.torn = l.file.Truncate(end) != nil
		return fmt.Errorf("journal: %w", bare(err))
	}
	clear(l.owed)
	l.end.Store(end + int64(len(l.buffer)))
	return nil
}

// sync returns when everything before end lasts. Of several callers one syncs for all of them.
// After an error nobody knows what lasts, and the log takes nothing more.
func (l *log) sync(end int64) error {
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	for l.syncing && l.failed == nil && l.synced < end {
		l.changed.Wait()
	}
	if l.synced >= end {
		return nil
	}
	if l.failed != nil {
		return l.failed
	}
	l.step("sync")
	l.leadLocked()
	return l.failed
}

// leadLocked syncs what is written by now, with syncMu released meanwhile.
func (l *log) leadLocked() {
	l.syncing = true
	l.syncMu.Unlock()
	runtime.Gosched() // who can run may have a line in it: of a busy server's syncs each is for more
	target := l.end.Load()
	err := l.file.Sync()
	l.syncMu.Lock()
	l.syncing = false
	if err != nil {
		l.failed = fmt.Errorf("%w (%w)", ErrFailed, bare(err))
		l.broken.Store(true)
	} else {
		l.synced = target
	}
	l.changed.Broadcast()
}

func (l *log) failure() error {
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	return l.failed
}

// bare strips real paths from an error: what is left may be shown to a client.
func bare(err error) error {
	var withPath *os.PathError
	if errors.As(err, &withPath) {
		return withPath.Err
	}
	var withPaths *os.LinkError
	if errors.As(err, &withPaths) {
		return withPaths.Err
	}
	return err
}

// fail makes the log refuse everything from now on.
func (l *log) fail(err error) {
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	if l.failed == nil {
		l.failed = fmt.Errorf("%w (%w)", ErrFailed, bare(err))
	}
	l.broken.Store(true)
}
