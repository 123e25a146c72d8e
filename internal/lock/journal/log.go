package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// ErrFailed is matched by what the store returns after the journal could not be synced or cut back once. The kernel may
// have dropped what it could not write and call the next sync a success, so the store believes no further one: it refuses
// every change, and the process is to end.
var ErrFailed = errors.New("the disk has failed the journal")

// ErrGone is matched, beside ErrFailed, where somebody has removed the journal, or put another file in its place: what is synced to it then
// is lost, and another server may use the state directory.
var ErrGone = errors.New("somebody has removed or replaced it")

// errTail is matched, beside ErrFailed, by the error of the change during which the journal failed: nobody knows whether it is on the disk.
var errTail = errors.New("the end of the journal is unknown")

// tokenBlock is how many tokens one synced line reserves: so many are skipped by a start at most.
const tokenBlock = 4096

// journalFile is what the log needs of its file; the tests make it fail.
type journalFile interface {
	WriteAt(b []byte, offset int64) (int, error)
	Truncate(size int64) error
	Sync() error // the data, and of the metadata what is needed to read it
	Close() error
}

// diskFile is a journalFile on disk.
type diskFile struct{ *os.File }

func (f diskFile) Sync() error { return datasync(f.File) }

// failure is the end of a store: what made its journal fail, once it has.
type failure struct {
	once sync.Once
	over chan struct{} // closed then
	err  error
}

// set makes the store refuse everything from now on. The error that it returns is for the change during which it happened.
func (f *failure) set(err error) error {
	f.once.Do(func() {
		f.err = fmt.Errorf("%w: %w", ErrFailed, bare(err))
		close(f.over)
	})
	return fmt.Errorf("%w: %w", errTail, f.err)
}

// get returns what made the store fail, or nil.
func (f *failure) get() error {
	select {
	case <-f.over:
		return f.err
	default:
		return nil
	}
}

// log is the end of one journal: it writes lines and syncs them, many at a time. Ahead of its last line the file has room, zeros that
// were written: a sync of what is written over them has no length and no extents to make last, which makes it cheaper, and
// a release finds room there when the disk is full.
type log struct {
	file    journalFile
	ahead   int64               // how much room is made at a time
	failure *failure            // that of the store
	told    func(time.Duration) // how long a sync took
	named   func() error        // an error if no start would read the file
	retired atomic.Bool         // a rotation puts another file in its place, while somebody may sync it

	// For the owner of Store.mu:
	size   int64 // the file has room up to here
	keep   int64 // so much of the room is for releases
	buffer []byte

	end atomic.Int64 // how many bytes of whole lines are written; changed by the owner of Store.mu

	syncMu  sync.Mutex
	changed sync.Cond
	syncing bool
	synced  int64
	closed  bool // nobody begins to sync; all of it lasts
}

// newLog returns a log that goes on at end of a file that has room up to size, all of it synced.
func (s *Store) newLog(f *os.File, end, size, keep int64) *log {
	l := &log{
		file: s.o.wrap(diskFile{f}), ahead: s.o.room(), failure: s.failure, told: s.o.Synced,
		named: s.dir.named(f), size: size, keep: keep, synced: end,
	}
	l.changed.L = &l.syncMu
	l.end.Store(end)
	return l
}

// named returns a function that returns ErrGone if a file is not the journal any more.
func (d stateDir) named(f *os.File) func() error {
	own, err := f.Stat()
	return func() error {
		there, terr := os.Stat(d.journal())
		if errors.Is(terr, fs.ErrNotExist) || err == nil && terr == nil && !os.SameFile(own, there) {
			return ErrGone
		}
		return nil
	}
}

// releaseRoom is how much room the releases of a record need: one line for each hold.
func releaseRoom(record lock.Record) int64 {
	return int64(len(record.Holds)) * (400 + 3*int64(len(record.Name)))
}

// append writes a line. After an error that does not match ErrFailed nothing has changed. The room for releases grows by more;
// only a grant has to leave it alone.
func (l *log) append(entry *line, more int64, grants bool) error {
	start := l.end.Load()
	l.buffer = appendLine(l.buffer[:0], entry)
	end := start + int64(len(l.buffer))
	if err := l.makeRoom(end + l.keep + more); err != nil {
		if !full(err) {
			return l.failure.set(err)
		}
		if grants || end > l.size {
			return fmt.Errorf("journal: %w", bare(err))
		}
	}
	if _, err := l.file.WriteAt(l.buffer, start); err != nil {
		return l.cutBack(start, err)
	}
	l.end.Store(end)
	l.keep += more
	return nil
}

// makeRoom sees to it that the file has room up to a size, and makes some more if it has not.
func (l *log) makeRoom(size int64) error {
	if size <= l.size {
		return nil
	}
	for to := size + l.ahead; l.size < to; {
		n, err := l.file.WriteAt(make([]byte, min(32<<10, to-l.size)), l.size)
		l.size += int64(n)
		if err != nil && l.size < size {
			return err
		}
		if err != nil {
			return nil // not all, but enough
		}
	}
	return nil
}

// cutBack removes the piece of a line whose write has failed. Only of a full disk it is known what is in the file then.
func (l *log) cutBack(end int64, err error) error {
	if !full(err) {
		return l.failure.set(err)
	}
	if terr := l.file.Truncate(end); terr != nil {
		return l.failure.set(terr)
	}
	l.size = end
	return fmt.Errorf("journal: %w", bare(err))
}

// full reports whether an error says that there is no room.
func full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// sync returns when everything before end lasts. Of several callers one syncs for all of them.
// After an error nobody knows what lasts, and the log takes nothing more.
func (l *log) sync(end int64) error {
	if done, err := l.wait(end); done || err != nil {
		return err
	}
	runtime.Gosched() // others that can run may have a line in it, so that one sync does for more of them
	target := l.end.Load()
	began := time.Now()
	err := l.file.Sync() // others may go on to write meanwhile, and wait for the next sync
	l.told(time.Since(began))
	if err == nil {
		if err = l.named(); l.retired.Load() { // asked behind it: set before the other file is there
			err = nil
		}
	}
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	if l.syncing = false; err == nil {
		l.synced = target
	} else {
		err = l.failure.set(err)
	}
	l.changed.Broadcast()
	return err
}

// wait returns when everything before end lasts, or when nobody else syncs: then the caller is to do it.
func (l *log) wait(end int64) (done bool, err error) {
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	for l.syncing && l.failure.get() == nil && l.synced < end {
		l.changed.Wait()
	}
	if l.synced >= end || l.closed {
		return true, nil
	}
	if err := l.failure.get(); err != nil {
		return false, fmt.Errorf("%w: %w", errTail, err)
	}
	l.syncing = true
	return false, nil
}

// finish cuts the room off, syncs what is written and closes the file.
func (l *log) finish() error {
	err := l.failure.get()
	if err == nil {
		err = l.file.Truncate(l.end.Load())
	}
	if err == nil {
		err = l.sync(l.end.Load() + 1) // its length, too
	}
	return errors.Join(err, l.close())
}

// close closes the file, of which all lasts or never will, when nobody syncs it any more.
func (l *log) close() error {
	l.syncMu.Lock()
	for l.syncing {
		l.changed.Wait()
	}
	l.closed = true
	l.syncMu.Unlock()
	return l.file.Close()
}

// bare strips real paths from an error: what is left may be shown to a client.
func bare(err error) error {
	var withPath *os.PathError
	if errors.As(err, &withPath) {
		return withPath.Err
	}
	return err
}
