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
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is a clock that goes on by a microsecond with each look, and as tests move it.
type clock struct {
	mu   sync.Mutex
	now  lock.Instant
	boot string
}

func newClock() *clock {
	return &clock{now: lock.Instant{Wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Boot: time.Hour}, boot: "boot-1"}
}

func (c *clock) Now() lock.Instant {
	c.advance(time.Microsecond)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Exact() lock.Instant { return c.Now() }

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now.Wall, c.now.Boot = c.now.Wall.Add(d), c.now.Boot+d
}

// step sets the wall clock forward or back.
func (c *clock) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now.Wall = c.now.Wall.Add(d)
}

// reboot begins another boot, after the machine was off for so long by the wall clock.
func (c *clock) reboot(off time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now.Wall, c.now.Boot, c.boot = c.now.Wall.Add(off), time.Minute, c.boot+"'"
}

// scene is a state directory with the logs that are opened on it.
type scene struct {
	testing.TB
	state   string
	clock   *clock
	options func(*Options)
	faults  faults
}

func newScene(t testing.TB) *scene {
	return &scene{TB: t, state: filepath.Join(t.TempDir(), "state"), clock: newClock()}
}

func (s *scene) open() (*Log, error) {
	o := Options{Dir: s.state, Clock: s.clock, BootID: s.clock.boot, Durable: true, Size: 64 << 10, wrap: s.faults.wrap}
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

// grant returns the record of a grant with the next token.
func (s *scene) grant(l *Log, name lock.Name) lock.Record {
	s.Helper()
	l.mu.Lock()
	token := l.last + 1
	l.mu.Unlock()
	if err := l.MakeRoom(context.Background(), token); err != nil {
		s.Fatal(err)
	}
	return s.granted(name, token)
}

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

func (s *scene) acquire(l *Log, name lock.Name) lock.Hold {
	s.Helper()
	r := s.grant(l, name)
	s.commit(l, r)
	return r.Hold
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

// path returns the path of the last segment that was begun.
func (s *scene) path() string {
	s.Helper()
	found, err := stateDir(s.state).read(s.clock.Now(), s.clock.boot)
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
		l.mu.Lock()
		token := l.last + 1
		l.mu.Unlock()
		err := l.MakeRoom(context.Background(), token)
		if errors.Is(err, lock.ErrFull) {
			return all
		}
		if err != nil {
			s.Fatal(err)
		}
		r := s.granted(lock.Name(fmt.Sprintf("/%d_lock", token)), token)
		s.commit(l, r)
		all = append(all, r.Hold)
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
