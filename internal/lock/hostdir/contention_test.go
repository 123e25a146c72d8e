package hostdir_test

import (
	"errors"
	"fmt"
	"os"
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
