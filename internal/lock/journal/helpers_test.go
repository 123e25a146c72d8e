package journal

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scene is a state directory with the stores that are opened on it.
type scene struct {
	locktest.Moves
	state   string
	clock   *locktest.FakeClock
	options func(*Options)
	wrap    func(journalFile) journalFile
}

func newScene(t testing.TB) *scene {
	clock := locktest.NewRunningClock()
	return &scene{Moves: locktest.Moves{TB: t, Clock: clock}, state: filepath.Join(t.TempDir(), "state"), clock: clock}
}

func (s *scene) open() (*Store, error) {
	o := Options{Dir: s.state, Clock: s.clock, Durable: true, MaxSize: 256 << 10, wrap: s.wrap} // little room: stores are opened by the thousand
	if s.options != nil {
		s.options(&o)
	}
	return Open(o)
}

func (s *scene) mustOpen() *Store {
	s.Helper()
	store, err := s.open()
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { store.Close() })
	return store
}

// crash leaves the store as the end of its process does: nothing is written, all files are closed.
func (s *scene) crash(store *Store) {
	s.Helper()
	store.mu.Lock()
	defer store.mu.Unlock()
	if !store.closed {
		close(store.closing)
	}
	store.closed = true
	store.log.file.Close()
	store.exclusive.Close()
}

func (s *scene) restart(store *Store) *Store {
	s.Helper()
	if err := store.Close(); err != nil {
		s.Fatal(err)
	}
	return s.mustOpen()
}

// journal returns the lines of the journal, without the room behind them.
func (s *scene) journal() string {
	s.Helper()
	b, err := os.ReadFile(stateDir(s.state).journal())
	if err != nil {
		s.Fatal(err)
	}
	return strings.TrimRight(string(b), "\x00")
}

func (s *scene) setJournal(text string) {
	s.Helper()
	if err := os.WriteFile(stateDir(s.state).journal(), []byte(text), 0o600); err != nil {
		s.Fatal(err)
	}
}

// rotated returns the files in history.
func (s *scene) rotated() []string {
	s.Helper()
	paths, err := stateDir(s.state).rotated()
	if err != nil {
		s.Fatal(err)
	}
	return paths
}

func (s *scene) rotate(store *Store) error {
	store.mu.Lock()
	defer store.mu.Unlock()
	return store.rotateLocked()
}

// causes are what the history of a name says, or "error".
func (s *scene) causes(name lock.Name) (all []string) {
	for entry, err := range History(s.state, name) {
		if err != nil {
			return append(all, "error")
		}
		all = append(all, string(entry.Cause))
	}
	return all
}

// failed reports whether the store says that its process must end.
func failed(store *Store) bool {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	select {
	case <-store.failure.over:
		return errors.Is(store.Run(context.Background()), ErrFailed)
	default:
		return store.Run(ctx) != nil
	}
}
