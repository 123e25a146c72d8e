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

	"github.com/ftplockd/ftplockd/internal/lock"
)

// table does what the lock table does with a log: acquires, releases and rewrites.
type table struct {
	*scene
	l     *Log
	mu    sync.Mutex
	holds map[lock.Token]lock.Hold
	last  lock.Token
}

func (s *scene) table(l *Log) *table {
	t := &table{scene: s, l: l, holds: make(map[lock.Token]lock.Hold), last: l.loaded.Last}
	for _, h := range l.loaded.Holds {
		t.holds[h.Token] = h
	}
	return t
}

func (t *table) acquire(ctx context.Context, name lock.Name) (lock.Hold, error) {
	t.mu.Lock()
	for !t.l.Room(t.last + 1) {
		token := t.last + 1
		t.mu.Unlock()
		if err := t.l.MakeRoom(ctx, token); err != nil {
			return lock.Hold{}, err
		}
		t.mu.Lock()
	}
	t.last++
	r := t.granted(name, t.last)
	t.holds[t.last] = r.Hold
	end := t.l.Append([]lock.Record{r})
	t.mu.Unlock()
	return r.Hold, t.l.Wait(ctx, end, true)
}

func (t *table) release(ctx context.Context, h lock.Hold) error {
	t.mu.Lock()
	delete(t.holds, h.Token)
	end := t.l.Append([]lock.Record{t.ended(h)})
	t.mu.Unlock()
	return t.l.Wait(ctx, end, false)
}

// Clients acquire and release while segments come and go. At any moment the files on disk, as a kill leaves them, have what was acknowledged.
func TestSegmentsUnderLoad(t *testing.T) {
	s := newScene(t)
	s.options = func(o *Options) { o.Size = 20_000; o.wrap = func(f file) file { return unsynced{f} } }
	l := s.mustOpen()
	table := s.table(l)
	const workers = 8
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var working sync.WaitGroup
	var mu sync.Mutex
	acknowledged := make(map[lock.Name]lock.Token) // 0: released; none: under way
	set := func(name lock.Name, token lock.Token, known bool) {
		mu.Lock()
		defer mu.Unlock()
		if delete(acknowledged, name); known {
			acknowledged[name] = token
		}
	}
	errs := make([]error, workers)
	for i := range workers {
		working.Go(func() {
			name := lock.Name(fmt.Sprintf("/%d_lock", i))
			for range 400 {
				set(name, 0, false)
				h, err := table.acquire(ctx, name)
				set(name, h.Token, err == nil)
				if err == nil {
					set(name, 0, false)
					err = table.release(ctx, h)
					set(name, 0, err == nil)
				}
				if errs[i] = err; err != nil {
					return
				}
			}
			_, errs[i] = table.acquire(ctx, name)
		})
	}
	done := make(chan struct{})
	go func() { working.Wait(); close(done) }()
	for running := true; running; {
		select {
		case <-done:
			running = false
		case <-time.After(20 * time.Millisecond):
		}
		s.look(&mu, acknowledged)
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	s.crash(l)
	l = s.mustOpen()
	if len(l.loaded.Holds) != workers {
		t.Errorf("%d holds", len(l.loaded.Holds))
	}
	all := s.numbers()
	if all[len(all)-1] < 8 {
		t.Errorf("%d segments", len(all))
	}
	entries := 0
	for e, err := range History(s.state, "") {
		if err != nil || e.Cause == "" {
			t.Fatalf("%+v, %v", e, err)
		}
		entries++
	}
	if entries != workers*801 {
		t.Errorf("%d entries, want %d", entries, workers*801)
	}
}

// look copies the files and reads the copy. Copies are made of one file after the other, the newest first, so an old one may have more.
func (s *scene) look(mu *sync.Mutex, acknowledged map[lock.Name]lock.Token) {
	s.Helper()
	mu.Lock()
	before := make(map[lock.Name]lock.Token)
	for name, token := range acknowledged {
		before[name] = token
	}
	numbers := s.numbers()
	dir := filepath.Join(s.TempDir(), "journal")
	if err := os.Mkdir(dir, 0o700); err != nil {
		s.Fatal(err)
	}
	for _, number := range slices.Backward(numbers) {
		b, err := os.ReadFile(stateDir(s.state).segment(number))
		if err != nil {
			s.Fatal(err)
		}
		s.write(stateDir(filepath.Dir(dir)).segment(number), string(b))
	}
	mu.Unlock()
	found, err := stateDir(filepath.Dir(dir)).read(s.clock.Now(), s.clock.boot)
	if err != nil {
		s.Fatal(err)
	}
	is := make(map[lock.Name]lock.Token)
	for _, h := range found.holds {
		is[h.Name] = h.Token
	}
	for name, token := range before {
		if token == 0 || is[name] == token {
			continue
		}
		s.Errorf("%s has token %d on disk; %d was acknowledged", name, is[name], token)
	}
}

// unsynced makes syncs free.
type unsynced struct{ file }

func (unsynced) Sync() error { return nil }

// A busy server has larger segments, which are full less often. A new one does not grow for a few locks.
func TestSegmentsOfABusyServerAreLarger(t *testing.T) {
	s := newScene(t)
	s.options = func(o *Options) { o.wrap = func(f file) file { return unsynced{f} } }
	l := s.mustOpen()
	for _, times := range []int64{1, 2, 4, 8, 8} {
		if size, least := l.tail.size, times*l.o.Size; size < least || size > least+l.o.Size/2 {
			t.Errorf("a segment has %d bytes, want about %d", size, least)
		}
		if err := l.turn(); err != nil {
			t.Fatal(err)
		}
	}
	next := func() int64 { size, _ := l.plan(); return size }
	before := next()
	s.acquire(l, "/a_lock")
	if after := next(); after != before && after != before+l.o.Size/steps {
		t.Errorf("a lock makes the next segment grow from %d to %d bytes", before, after)
	}
}

// Where a larger segment has no space, one of the usual size follows.
func TestALargerSegmentIsNotNeeded(t *testing.T) {
	s := newScene(t)
	s.faults.set(func(f *faults) { f.limit = (64 << 10) * 7 / 4 })
	l := s.mustOpen()
	for range 3 {
		if err := l.turn(); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(s.path())
		if err != nil || info.Size() != l.tail.size || l.tail.size > l.o.Size*5/4+grantRoom {
			t.Errorf("a segment has %d bytes, its file %v, %v", l.tail.size, info, err)
		}
		s.release(l, s.acquire(l, "/a_lock"))
	}
}

// The holds that stand are written again, so that the history does not grow for the sake of one.
func TestARewriteMakesOldSegmentsRemovable(t *testing.T) {
	s := newScene(t)
	s.options = func(o *Options) { o.HistorySize = 1 }
	l := s.mustOpen()
	s.acquire(l, "/a_lock")
	for _, first := range []uint64{1, 2, 3} { // the header of the next segment is the first that goes by the rewrite
		if err := l.turn(); err != nil {
			t.Fatal(err)
		}
		if all := s.numbers(); len(all) != 2 || all[0] != first {
			t.Errorf("segments %d", all)
		}
	}
	s.crash(l)
	if l = s.mustOpen(); s.held(l) != "/a_lock" {
		t.Errorf("held %s", s.held(l))
	}
}

// While the holds are written again, grants leave the space that this needs, and the space for the ends of all holds.
func TestARewriteLeavesSpaceForReleases(t *testing.T) {
	s := newScene(t)
	l := s.mustOpen()
	table := s.table(l)
	acquire := func() {
		if _, err := table.acquire(t.Context(), "/a_lock"); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 * rewriteBatch {
		acquire()
	}
	number := l.tail.number
	s.faults.set(func(f *faults) {
		f.onWrite = func(b []byte, _ int64) error {
			if strings.Contains(string(b), "\nheld ") {
				s.faults.set(func(f *faults) { f.onWrite = nil })
				for table.l.Room(table.last + 1) {
					table.last++
					l.Append([]lock.Record{s.granted("/a_lock", table.last)})
				}
			}
			return nil
		}
	})
	if err := l.turn(); err != nil || l.tail.number == number {
		t.Fatal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if free, needed := l.free(), l.needed(0); free < needed-grantRoom {
		t.Errorf("%d bytes are left for releases that need %d", free, needed)
	}
}

func TestManyLocksMakeSegmentsLarger(t *testing.T) {
	s := newScene(t)
	s.options = func(o *Options) { o.Size, o.Durable = 1000, false }
	l := s.mustOpen()
	table := s.table(l)
	for i := range 2000 {
		if _, err := table.acquire(t.Context(), lock.Name(fmt.Sprintf("/%d_lock", i))); err != nil {
			t.Fatal(err)
		}
	}
	if all := s.numbers(); all[len(all)-1] > 25 {
		t.Errorf("segment %d", all[len(all)-1])
	}
	s.crash(l)
	if l = s.mustOpen(); len(l.loaded.Holds) != 2000 {
		t.Errorf("%d holds", len(l.loaded.Holds))
	}
}

func TestHistory(t *testing.T) {
	s := newScene(t)
	l := s.mustOpen()
	var want []string
	for i := range 10 {
		h := s.acquire(l, "/a_lock")
		s.clock.advance(time.Minute)
		r := s.ended(h)
		r.Cause, r.By, r.Note = lock.CauseBreak, lock.Owner{Account: "root"}, strings.Repeat("x", i*i*i*i*20) // up to two buffers
		s.commit(l, r)
		want = append(want, "acquire ada 0s ", "break root 1m0s "+r.Note)
		s.release(l, s.acquire(l, "/b_lock"))
		if i == 5 {
			l.Close()
			l = s.mustOpen()
		}
	}
	check := func() {
		t.Helper()
		var got []string
		for entry, err := range History(s.state, "/a_lock") {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprintf("%s %s %v %s", entry.Cause, entry.By.Account, entry.Held.Round(time.Second), entry.Note))
		}
		if !slices.Equal(got, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	check()
	s.crash(l)
	path := s.path()
	text := strings.Join(s.lines(path), "")
	for _, tail := range []string{"grant /a_lock 1", "grant /a_lock 1\x00\x00\n", "\x00\x00\x00"} {
		s.write(path, text+tail) // what a line that is just being written leaves
		check()
	}
	for range History(s.state, "/a_lock") {
		break
	}
	for _, err := range History(t.TempDir(), "/a_lock") {
		if err == nil {
			t.Error("a directory without a journal has a history")
		}
	}
	damaged := stateDir(s.state).segment(s.numbers()[0])
	s.write(damaged, strings.Replace(strings.Join(s.lines(damaged), ""), " ada ", " eve ", 1))
	if got := s.causes("/a_lock"); got[len(got)-1] != "error" {
		t.Errorf("of a damaged file: %q", got)
	}
}

// A server that runs on begins a segment each day, so that the entries can go when they are too old.
func TestASweepBeginsASegmentEachDayAndRemovesWhatIsOld(t *testing.T) {
	const day = 24 * time.Hour
	s := newScene(t)
	s.options = func(o *Options) { o.HistoryAge = 90 * day }
	l := s.mustOpen()
	s.release(l, s.acquire(l, "/a_lock"))
	for _, c := range []struct {
		passes  time.Duration
		entries int
		begun   uint64
	}{{0, 2, 1}, {day + time.Minute, 2, 2}, {0, 2, 2}, {89 * day, 2, 2}, {2 * day, 0, 3}} {
		s.clock.advance(c.passes)
		if err := l.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := len(s.causes("/a_lock")); got != c.entries || l.tail.number != c.begun {
			t.Errorf("%v later: %d entries, want %d; segment %d", c.passes, got, c.entries, l.tail.number)
		}
		if l.tail.number == 2 && c.passes == day+time.Minute { // the system's clock has not been advanced
			at := s.clock.Now().Wall
			if err := os.Chtimes(stateDir(s.state).segment(1), at, at); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A segment that cannot be read is an error of a sweep, and the sweep removes nothing.
func TestASweepOfAnUnreadableSegment(t *testing.T) {
	s := newScene(t)
	s.options = func(o *Options) { o.HistorySize = 1 }
	l := s.mustOpen()
	s.write(filepath.Join(stateDir(s.state).segments(), "0"+suffix), "") // of number 0, but under another name
	if err := l.Sweep(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAHistoryEndsWithItsContext(t *testing.T) {
	s := newScene(t)
	l := s.mustOpen()
	s.acquire(l, "/a_lock")
	s.acquire(l, "/a_lock")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var errs []error
	for _, err := range l.History(ctx, "/a_lock") {
		errs = append(errs, err)
		cancel()
	}
	if len(errs) != 2 || errs[0] != nil || !errors.Is(errs[1], context.Canceled) {
		t.Errorf("an entry, and then the end of the context: %v", errs)
	}
}
