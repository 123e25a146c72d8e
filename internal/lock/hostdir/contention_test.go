package hostdir_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/ftplockd/ftplockd/internal/lock"
)

func TestAClientAndAProgramOnTheHostNeverBothGetTheLock(t *testing.T) {
	s := newScene(t)
	for i := range 300 {
		name := fmt.Sprintf("/locks/%d", i)
		host := make(chan error)
		go func() { host <- os.Mkdir(s.real(name), 0o755) }()
		_, err := s.Make(t.Context(), lock.Name(name))
		if herr := <-host; (err == nil) == (herr == nil) || err != nil && !errors.Is(err, lock.ErrHeld) {
			t.Fatalf("client: %v, host: %v", err, herr)
		}
	}
}

func TestManyCallersInOneDirectory(t *testing.T) {
	s := newScene(t)
	var wg sync.WaitGroup
	for c := range 64 {
		wg.Go(func() {
			for i := range 20 {
				n := lock.Name(fmt.Sprintf("/locks/%d-%d", c, i))
				id, err := s.Make(context.Background(), n)
				if err != nil {
					t.Error(err)
					return
				}
				h := lock.Hold{Name: n, Directory: id}
				s.gone(h, false)
				if _, err := s.Remove(context.Background(), h, lock.CauseRelease); err != nil {
					t.Error(err)
				}
				s.wants(string(n), false)
			}
		})
	}
	wg.Wait()
}
