package hostdir

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// TestClientsAndProgramsOnTheHostExcludeEachOther has both take the same locks, each in its own way.
func TestClientsAndProgramsOnTheHostExcludeEachOther(t *testing.T) {
	s := newScene(t)
	store := s.mustOpen()
	const clients, programs, turns = 4, 2, 100
	var users [2]atomic.Int32
	use := func(i int) {
		if n := users[i].Add(1); n != 1 {
			t.Errorf("%d hold lock %d at once", n, i)
		}
		users[i].Add(-1)
	}
	name := func(i int) lock.Name { return lock.Name(fmt.Sprintf("/%d_lock", i)) }
	var running sync.WaitGroup
	for range clients {
		running.Go(func() {
			for turn := range turns {
				i := turn % 2
				token, err := s.Commit(store, name(i), 0, s.Hold("ada"))
				if errors.Is(err, lock.ErrConflict) {
					continue
				}
				if err == nil {
					use(i)
					_, err = s.Commit(store, name(i), token)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range programs {
		running.Go(func() {
			for turn := range turns {
				i := turn % 2
				if dir := s.tree.real(string(name(i))); os.Mkdir(dir, 0o755) == nil {
					use(i)
					if err := os.Remove(dir); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	running.Wait()
	store.look(t.Context(), new(turn))
	if got := s.Records(store); len(got) != 0 {
		t.Errorf("still held: %v", got)
	}
	for i := range users {
		s.hasDirectory(string(name(i)), false)
	}
}
