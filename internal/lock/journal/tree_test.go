package journal

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// Many who make and remove directories in the same one would keep as many threads waiting.
func TestFewChangeOneDirectoryAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.options = func(o *Options) { o.Durable, o.Root = false, "" }
		s.mkdir("/locks")
		store := s.mustOpen()
		goOn := make(chan struct{})
		var now atomic.Int32
		s.tree.before = func(op, _ string) error {
			if op == "mkdir" || op == "rmdir" {
				now.Add(1)
				defer now.Add(-1)
				<-goOn
			}
			return nil
		}
		const clients = 10
		for i := range clients {
			go func() {
				n := lock.Name(fmt.Sprintf("/locks/%d", i))
				hold := lock.Hold{Acquired: s.clock.Now()}
				token, err := store.Commit(context.Background(), lock.Change{Name: n, Holds: []lock.Hold{hold}, Cause: lock.CauseAcquire})
				if err == nil {
					_, err = store.Commit(context.Background(), lock.Change{Name: n, If: token, Cause: lock.CauseRelease})
				}
				if err != nil {
					t.Error(err)
				}
			}()
		}
		for left := 2 * clients; left > 0; left-- { // as many makings and removals
			synctest.Wait()
			if n := int(now.Load()); n != min(atOnce, left) {
				t.Errorf("%d at once, with %d to go", n, left)
			}
			goOn <- struct{}{}
		}
		synctest.Wait()
	})
}
