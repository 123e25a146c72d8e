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

// Clients acquire and release while segments come and go. At any moment the files on disk, as a kill leaves them, have what was acknowledged.
func TestSegmentsUnderLoad(t *testing.T) {
	s := newScene(t)
	s.options = func(o *Options) { o.Size = 20_000; withoutSyncs(o) }
	l := s.mustOpen()
	const workers = 8
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
				h, err := s.try(l, name)
				set(name, h.Token, err == nil)
				if err == nil {
					set(name, 0, false)
					err = l.Wait(t.Context(), l.Append([]lock.Record{s.ended(h)}), false)
					set(name, 0, err == nil)
				}
				if errs[i] = err; err != nil {
					return
				}
			}
			set(name, 0, false)
			_, errs[i] = s.try(l, name)
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
		if err := l.Ready(); err != nil { // its sync is beside those of new segments
			t.Error(err)
		}
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

// look copies the files and reads the copy, while the set of acknowledged holds does not change. It copies the newest file first, so an old one may have
// more.
func (s *scene) look(mu *sync.Mutex, acknowledged map[lock.Name]lock.Token) {
	s.Helper()
	mu.Lock()
	defer mu.Unlock()
	copied := stateDir(s.TempDir())
	if err := os.Mkdir(copied.segments(), 0o700); err != nil {
		s.Fatal(err)
	}
	for _, number := range slices.Backward(s.numbers()) {
		b, err := os.ReadFile(stateDir(s.state).segment(number))
		if err != nil {
			s.Fatal(err)
		}
		s.write(copied.segment(number), string(b))
	}
	found, err := copied.read(s.clock.Now(), s.clock.BootID())
	if err != nil {
		s.Fatal(err)
	}
	is := make(map[lock.Name]lock.Token)
	for _, h := range found.holds {
		is[h.Name] = h.Token
	}
	for name, token := range acknowledged {
		if is[name] != token {
			s.Errorf("%s has token %d on disk; %d was acknowledged", name, is[name], token)
		}
	}
}

// A busy server has larger segments, which are full less often. A new one does not grow for a few locks.
func TestSegmentsOfABusyServerAreLarger(t *testing.T) {
	s := newScene(t)
	s.options = withoutSyncs
	l := s.mustOpen()
	for _, times := range []int64{1, 2, 4, 8, 8} {
		if size, least := l.tail.size, times*l.o.Size; size < least || size > least+l.o.Size/2 {
			t.Errorf("a segment has %d bytes, want about %d", size, least)
		}
		s.mustTurn(l)
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
		s.mustTurn(l)
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
		s.mustTurn(l)
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
	for range 2 * rewriteBatch {
		s.acquire(l, "/a_lock")
	}
	number := l.tail.number
	s.faults.set(func(f *faults) {
		f.onWrite = func(b []byte, _ int64) error {
			if strings.Contains(string(b), "\nheld ") {
				s.faults.set(func(f *faults) { f.onWrite = nil })
				for token := lock.Token(2*rewriteBatch + 1); l.Room(token); token++ {
					l.Append([]lock.Record{s.granted("/a_lock", token)})
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
	for i := range 2000 {
		s.acquire(l, lock.Name(fmt.Sprintf("/%d_lock", i)))
	}
	if all := s.numbers(); all[len(all)-1] > 25 {
		t.Errorf("segment %d", all[len(all)-1])
	}
	s.crash(l)
	if l = s.mustOpen(); len(l.loaded.Holds) != 2000 {
		t.Errorf("%d holds", len(l.loaded.Holds))
	}
}

// locktest has the entries themselves.
func TestAHistoryWhileTheServerWritesAndOfADamagedFile(t *testing.T) {
	s := newScene(t)
	l := s.mustOpen()
	s.release(l, s.acquire(l, "/a_lock"))
	s.mustTurn(l)
	s.release(l, s.acquire(l, "/a_lock"))
	s.crash(l)
	path := s.path()
	text := strings.Join(s.lines(path), "")
	for _, tail := range []string{"grant /a_lock 1", "grant /a_lock 1\x00\x00\n", "\x00\x00\x00"} {
		s.write(path, text+tail) // what a line that is just being written leaves
		if got := strings.Join(s.causes("/a_lock"), " "); got != "acquire release acquire release" {
			t.Errorf("%q: %s", tail, got)
		}
	}
	for range History(s.state, "/a_lock") {
		break
	}
	for _, err := range History(t.TempDir(), "/a_lock") {
		if err == nil {
			t.Error("a directory without a journal has a history")
		}
	}
	damaged := stateDir(s.state).segment(1)
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
	s.write(filepath.Join(stateDir(s.state).segments(), "0"+suffix), "") // of number 0, under another name: it cannot be read
	for _, c := range []struct {
		passes  time.Duration
		entries int
		begun   uint64
	}{{0, 2, 1}, {day + time.Minute, 2, 2}, {0, 2, 2}, {89 * day, 2, 2}, {2 * day, 0, 3}} {
		s.clock.Advance(c.passes)
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
