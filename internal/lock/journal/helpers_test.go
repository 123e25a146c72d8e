package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scene is a state directory with the logs that are opened on it.
type scene struct {
	testing.TB
	state   string
	clock   *locktest.FakeClock
	options func(*Options)
	faults  faults
	mu      sync.Mutex // as the table's, held while a token is chosen and its grant is appended
}

func newScene(t testing.TB) *scene {
	return &scene{TB: t, state: filepath.Join(t.TempDir(), "state"), clock: locktest.NewRunningClock()}
}

func (s *scene) open() (*Log, error) {
	o := Options{Dir: s.state, Clock: s.clock, BootID: s.clock.BootID(), Durable: true, Size: 64 << 10, wrap: s.faults.wrap}
	if s.options != nil {
		s.options(&o)
	}
	return Open(o)
}

func (s *scene) mustOpen() *Log {
	s.Helper()
	l, err := s.open()
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { s.crash(l) })
	return l
}

// crash ends the log as SIGKILL ends its process: nothing more is written.
func (s *scene) crash(l *Log) {
	l.writing.Lock()
	over := l.closed
	l.closed = true
	l.writing.Unlock()
	if over {
		return
	}
	close(l.stop)
	l.loops.Wait()
	l.target.Close()
	if l.spare != nil {
		l.spare.Close()
	}
	l.exclusive.Close()
}

var rule = &lock.Rule{Match: "/**/*_lock", MaxAge: time.Hour, OnDisconnect: lock.ReleaseOnDisconnect, Release: lock.ReleaseAddress}

// granted returns the record of a grant.
func (s *scene) granted(name lock.Name, token lock.Token) lock.Record {
	now := s.clock.Now()
	owner := lock.Owner{Account: "ada", Address: "192.0.2.1", Session: 1<<40 | 7}
	h := lock.Hold{Name: name, Token: token, Owner: owner, Acquired: now, Renewed: now, Rule: rule}
	return lock.Record{Kind: lock.Granted, Cause: lock.CauseAcquire, Hold: h, By: owner, At: now}
}

func (s *scene) ended(h lock.Hold) lock.Record {
	return lock.Record{Kind: lock.Ended, Cause: lock.CauseRelease, Hold: h, By: h.Owner, At: s.clock.Now()}
}

// commit appends records and waits for them.
func (s *scene) commit(l *Log, records ...lock.Record) {
	s.Helper()
	if err := l.Wait(context.Background(), l.Append(records), records[0].Kind == lock.Granted); err != nil {
		s.Fatal(err)
	}
}

// next returns the next token when there is room for its grant.
func (s *scene) next(l *Log) (lock.Token, error) {
	l.mu.Lock()
	token := l.last + 1
	l.mu.Unlock()
	return token, l.MakeRoom(s.Context(), token)
}

// try acquires a lock. Several goroutines may call it.
func (s *scene) try(l *Log, name lock.Name) (lock.Hold, error) {
	s.mu.Lock()
	token, err := s.next(l)
	if err != nil {
		s.mu.Unlock()
		return lock.Hold{}, err
	}
	r := s.granted(name, token)
	end := l.Append([]lock.Record{r})
	s.mu.Unlock()
	return r.Hold, l.Wait(s.Context(), end, true)
}

func (s *scene) acquire(l *Log, name lock.Name) lock.Hold {
	s.Helper()
	h, err := s.try(l, name)
	if err != nil {
		s.Fatal(err)
	}
	return h
}

func (s *scene) release(l *Log, h lock.Hold) {
	s.Helper()
	s.commit(l, s.ended(h))
}

// held returns the names that a log was loaded with.
func (s *scene) held(l *Log) string { return names(l.loaded) }

func names(loaded lock.Loaded) string {
	var all []string
	for _, h := range loaded.Holds {
		all = append(all, string(h.Name))
	}
	return strings.Join(all, " ")
}

func (s *scene) read() (*content, error) {
	return stateDir(s.state).read(s.clock.Now(), s.clock.BootID())
}

// path returns the path of the last segment that was begun.
func (s *scene) path() string {
	s.Helper()
	found, err := s.read()
	if err != nil {
		s.Fatal(err)
	}
	return stateDir(s.state).segment(found.number)
}

// lines returns the lines of a segment, without the zeros behind them.
func (s *scene) lines(path string) []string {
	s.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		s.Fatal(err)
	}
	return slices.Collect(strings.Lines(strings.TrimRight(string(b), "\x00")))
}

func (s *scene) write(path, text string) {
	s.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.Fatal(err)
	}
}

// numbers returns the numbers of the segments.
func (s *scene) numbers() []uint64 {
	s.Helper()
	all, err := stateDir(s.state).numbers()
	if err != nil {
		s.Fatal(err)
	}
	return all
}

// causes returns the causes in the history of a name, or "error".
func (s *scene) causes(name lock.Name) (all []string) {
	for entry, err := range History(s.state, name) {
		if err != nil {
			return append(all, "error")
		}
		all = append(all, string(entry.Cause))
	}
	return all
}

// fill acquires locks until there is no more room.
func (s *scene) fill(l *Log) (all []lock.Hold) {
	s.Helper()
	for i := 0; ; i++ {
		h, err := s.try(l, lock.Name(fmt.Sprintf("/%d_%d_lock", len(s.numbers()), i)))
		if errors.Is(err, lock.ErrFull) {
			return all
		}
		if err != nil {
			s.Fatal(err)
		}
		all = append(all, h)
	}
}

// faults are what the files of a log do wrong.
type faults struct {
	mu      sync.Mutex
	onWrite func(b []byte, at int64) error
	onSync  func() error
	limit   int64 // a file may not get longer; 0: any length
}

func (f *faults) set(change func(*faults)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *faults) wrap(real file) file { return faulty{real, f} }

// unsynced makes syncs free.
type unsynced struct{ file }

func (unsynced) Sync() error { return nil }

func withoutSyncs(o *Options) { o.wrap = func(f file) file { return unsynced{f} } }

// turn begins a new segment, and sweeps.
func (l *Log) turn() error { return errors.Join(l.keep(true), l.Sweep(context.Background())) }

func (s *scene) mustTurn(l *Log) {
	s.Helper()
	if err := l.turn(); err != nil {
		s.Fatal(err)
	}
}

type faulty struct {
	file
	f *faults
}

func (f faulty) WriteAt(b []byte, at int64) (int, error) {
	f.f.mu.Lock()
	onWrite, limit := f.f.onWrite, f.f.limit
	f.f.mu.Unlock()
	if onWrite != nil {
		if err := onWrite(b, at); err != nil {
			return 0, &os.PathError{Op: "write", Path: "/real/path", Err: err}
		}
	}
	if limit > 0 && at+int64(len(b)) > limit {
		n, _ := f.file.WriteAt(b[:max(0, limit-at)], at)
		return n, &os.PathError{Op: "write", Path: "/real/path", Err: errFull}
	}
	return f.file.WriteAt(b, at)
}

func (f faulty) Sync() error {
	f.f.mu.Lock()
	onSync := f.f.onSync
	f.f.mu.Unlock()
	if onSync != nil {
		if err := onSync(); err != nil {
			return &os.PathError{Op: "fdatasync", Path: "/real/path", Err: err}
		}
	}
	return f.file.Sync()
}
