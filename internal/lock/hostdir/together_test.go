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

// resource is what a lock protects: it knows who is using it.
type resource struct {
	name lock.Name
	user atomic.Int32
}

func (r *resource) use(t *testing.T, me int32) {
	if !r.user.CompareAndSwap(0, me) {
		t.Errorf("%s: %d and %d hold it at once", r.name, r.user.Load(), me)
	}
}

func (r *resource) leave(t *testing.T, me int32) {
	if !r.user.CompareAndSwap(me, 0) {
		t.Errorf("%s: %d held it, then it was %d's", r.name, me, r.user.Load())
	}
}

// TestClientsAndProgramsOnTheHostExcludeEachOther has both take the same locks, each in its own way.
func TestClientsAndProgramsOnTheHostExcludeEachOther(t *testing.T) {
	s := newScene(t)
	store := s.mustOpen()
	const clients, programs, turns = 4, 2, 100
	var resources [2]*resource
	for i := range resources {
		resources[i] = &resource{name: lock.Name(fmt.Sprintf("/%d_lock", i))}
	}
	var running sync.WaitGroup
	for i := range clients {
		running.Go(func() {
			for turn := range turns {
				s.clientTurn(t, store, resources[turn%2], int32(1+i))
			}
		})
	}
	for i := range programs {
		running.Go(func() {
			for turn := range turns {
				s.programTurn(t, resources[turn%2], int32(101+i))
			}
		})
	}
	running.Wait()
	store.look(t.Context(), new(turn))
	if got := s.Records(store); len(got) != 0 {
		t.Errorf("still held: %v", got)
	}
	for _, r := range resources {
		s.hasDirectory(string(r.name), false)
	}
}

func (s *scene) clientTurn(t *testing.T, store *Store, r *resource, me int32) {
	token, err := s.Commit(store, r.name, 0, s.Hold("ada"))
	if errors.Is(err, lock.ErrConflict) {
		return
	}
	if err != nil {
		t.Error(err)
		return
	}
	r.use(t, me)
	r.leave(t, me)
	if _, err := s.Commit(store, r.name, token); err != nil {
		t.Errorf("release: %v", err)
	}
}

func (s *scene) programTurn(t *testing.T, r *resource, me int32) {
	if os.Mkdir(s.tree.real(string(r.name)), 0o755) != nil {
		return
	}
	r.use(t, me)
	r.leave(t, me)
	if err := os.Remove(s.tree.real(string(r.name))); err != nil {
		t.Error(err)
	}
}
