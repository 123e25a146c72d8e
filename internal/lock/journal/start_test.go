package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

func TestTokensGrowAfterAnyEndOfTheServer(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(s *scene, l *Log)
		want lock.Token
	}{
		"in order":             {func(s *scene, l *Log) { l.Close() }, 2},
		"in order, and a boot": {func(s *scene, l *Log) { l.Close(); s.clock.Reboot("boot-2", time.Hour) }, 2},
		"by a kill":            {func(s *scene, l *Log) { s.crash(l) }, tokenBlock},
		"by a loss of power":   {func(s *scene, l *Log) { s.crash(l); s.clock.Reboot("boot-2", time.Hour) }, tokenBlock},
		"without a boot id":    {func(s *scene, l *Log) { s.crash(l); s.options = func(o *Options) { o.BootID = "" } }, tokenBlock},
		"by a failed sync":     {func(s *scene, l *Log) { l.failure.set(os.ErrInvalid); s.crash(l) }, tokenBlock},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			l := s.mustOpen()
			s.release(l, s.acquire(l, "/a_lock"))
			s.acquire(l, "/a_lock")
			c.end(s, l)
			if l = s.mustOpen(); l.loaded.Last != c.want || s.held(l) != "/a_lock" {
				t.Errorf("last token %d, want %d; held %s", l.loaded.Last, c.want, s.held(l))
			}
			s.crash(l)
			if l = s.mustOpen(); l.loaded.Start != 3 {
				t.Errorf("start %d", l.loaded.Start)
			}
		})
	}
}

// No token is given before the end of its block is synced, also if nothing else is.
func TestTokensComeFromSyncedBlocks(t *testing.T) {
	s := newScene(t)
	s.options = func(o *Options) { o.Durable, o.Size = false, 1<<20 }
	l := s.mustOpen()
	for token := lock.Token(500); token <= 3*tokenBlock; token += 500 {
		if err := l.MakeRoom(t.Context(), token); err != nil {
			t.Fatal(err)
		}
		s.commit(l, s.granted("/a_lock", token))
	}
	l.mu.Lock()
	last, reserved := l.last, l.reserved
	l.mu.Unlock()
	if last != 3*tokenBlock || reserved < last {
		t.Errorf("token %d of %d", last, reserved)
	}
	s.crash(l)
	s.clock.Reboot("boot-2", 0)
	if l = s.mustOpen(); l.loaded.Last < reserved || l.loaded.Last > reserved+tokenBlock {
		t.Errorf("tokens go on after %d, reserved was %d", l.loaded.Last, reserved)
	}
	// Grants that wait for their directories can use up half a block: the next one waits, and does not spin.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.MakeRoom(ctx, l.last+tokenBlock/2+1); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestTimesOfAnotherBoot(t *testing.T) {
	for name, c := range map[string]struct {
		off  time.Duration
		age  time.Duration
		step time.Duration // of the wall clock between two records
		same bool          // the id of the boot is the same, as in another time namespace
	}{
		"forward":                  {time.Hour, time.Hour + time.Minute, 0, false},
		"the boot clock went back": {time.Hour, time.Hour + time.Minute, 0, true},
		"the wall clock went back": {-time.Hour, time.Minute, 0, false},
		"both clocks went back":    {-time.Hour, time.Minute, 0, true}, // as after the restore of a snapshot of the machine
		"the wall clock was set":   {time.Hour, time.Hour + time.Minute, 24 * time.Hour, false},
		"it was set back":          {time.Hour, time.Hour + time.Minute, -24 * time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			l := s.mustOpen()
			h := s.acquire(l, "/a_lock")
			s.clock.Advance(time.Minute)
			s.clock.StepWall(c.step)
			s.release(l, s.acquire(l, "/b_lock"))
			s.crash(l)
			boot := "boot-2"
			if c.same {
				boot = s.clock.BootID()
			}
			s.clock.Reboot(boot, c.off)
			for range 3 { // later starts of the same boot change nothing
				l = s.mustOpen()
				got, now := l.loaded.Holds[0], s.clock.Now()
				if age := (now.Boot - got.Renewed.Boot).Round(time.Minute); age != c.age || got.Acquired.Boot != got.Renewed.Boot {
					t.Errorf("%v old, want %v; %+v", age, c.age, got)
				}
				if c.off > 0 && !got.Acquired.Wall.Equal(h.Acquired.Wall) {
					t.Errorf("acquired at %v, want %v", got.Acquired.Wall, h.Acquired.Wall)
				}
				c.age += time.Minute
				s.clock.Advance(time.Minute)
				s.crash(l)
			}
		})
	}
}

func TestASecondServerIsRefused(t *testing.T) {
	s := newScene(t)
	if err := InUse(s.state); err != nil {
		t.Error(err)
	}
	l := s.mustOpen()
	for _, pid := range []string{fmt.Sprintf(" (pid %d)", os.Getpid()), ""} {
		for _, err := range []error{InUse(s.state), func() error { _, err := s.open(); return err }(), func() error { _, _, err := ReserveDir(s.state, s.clock, s.clock.BootID()); return err }()} {
			if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), s.state+" is in use: another ftplockd"+pid+" uses") {
				t.Errorf("got %v", err)
			}
		}
		_ = os.Remove(filepath.Join(s.state, "lock")) // the directory is locked, too
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := InUse(s.state); err != nil {
		t.Error(err)
	}
}

// Starts that record nothing leave nothing behind but their last one. A start that broke off leaves lines in the spare file.
func TestStartsWithoutEntriesLeaveOneSegment(t *testing.T) {
	s := newScene(t)
	l := s.mustOpen()
	s.acquire(l, "/a_lock")
	for i := range 5 {
		if i%2 == 0 {
			l.Close()
		} else {
			s.crash(l)
		}
		s.write(stateDir(s.state).spare(), strings.Repeat("\x00", 1<<20)+strings.Join(s.lines(s.path()), ""))
		if l = s.mustOpen(); s.held(l) != "/a_lock" {
			t.Errorf("held %s", s.held(l))
		}
	}
	if all := s.numbers(); len(all) != 2 || all[0] != 1 {
		t.Errorf("segments %d", all)
	}
	if got := s.causes("/a_lock"); strings.Join(got, " ") != "acquire" {
		t.Errorf("history %q", got)
	}
}

// A server that keeps its locks in another log marks its state directory. It takes one whose journal has no held lock, as that of a
// package's first start, and goes on with the tokens of that journal.
func TestOpenRefusesAClaimedDirectory(t *testing.T) {
	s := newScene(t)
	claim := func() (lock.Token, error) {
		c, last, err := ReserveDir(s.state, s.clock, s.clock.BootID())
		if err == nil {
			c.Close()
		}
		return last, err
	}
	l := s.mustOpen()
	h := s.acquire(l, "/a_lock")
	l.Close()
	if _, err := claim(); err == nil || !strings.Contains(err.Error(), `1 locks that were granted without [etcd]`) || !strings.Contains(err.Error(), "ftplockd break") {
		t.Errorf("Claim of a directory with a held lock: %v", err)
	}
	l = s.mustOpen()
	s.release(l, h)
	l.Close()
	for range 2 {
		if last, err := claim(); err != nil || last != h.Token {
			t.Fatalf("Claim: token %d, %v", last, err)
		}
	}
	if _, err := s.open(); err == nil || !strings.Contains(err.Error(), "are in etcd: is the section [etcd] missing?") {
		t.Errorf("Open: %v", err)
	}
	if err := os.Remove(filepath.Join(s.state, elsewhereMarker)); err != nil {
		t.Fatal(err)
	}
	s.mustOpen().Close()
}
