package driver

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// Clients take locks, store in them and give them back, while locks are broken, connections cut and leftovers looked for: each
// file that was stored and not removed by its holder is left over, once, and nobody finds another's.
func TestNoFileInALockIsLostOrFoundByTheNextHolder(t *testing.T) {
	for name, mode := range map[string]func(*setup){"directories": func(*setup) {}, "no directories": plainLocks} {
		t.Run(name, func(t *testing.T) {
			s := start(t, mode)
			var mu sync.Mutex
			stored := make(map[string]bool) // by content; false: it may have been stored
			note := func(id string, is bool) {
				mu.Lock()
				defer mu.Unlock()
				stored[id] = is
			}
			gone := func(id string) {
				mu.Lock()
				defer mu.Unlock()
				delete(stored, id)
			}
			var clients, breakers sync.WaitGroup
			done := make(chan struct{})
			breakers.Go(func() {
				boss := s.as("boss")
				for i := 0; ; i++ {
					select {
					case <-done:
						return
					case <-time.After(500 * time.Microsecond):
					}
					if status, ok := s.table.Get(lock.Name(fmt.Sprintf("/gone/%d", i%2))); ok {
						boss.ask(fmt.Sprintf("SITE LOCK BREAK %d %s", status.Holds[0].Token, status.Name))
					}
				}
			})
			for i := range 4 {
				clients.Go(func() {
					c := s.as("phoneacc")
					for turn := range 60 {
						dir := fmt.Sprintf("/gone/%d", turn%2)
						if !strings.HasPrefix(c.ask("MKD "+dir), "257 ") {
							continue
						}
						id := fmt.Sprintf("%d-%d", i, turn)
						note(id, false)
						if got, _ := c.download("NLST " + dir); got != "" && got != dir+"/f\r\n" {
							t.Errorf("%s holds %q", dir, got)
						}
						r := c.upload("STOR "+dir+"/f", id)
						if !strings.HasPrefix(r, "226 ") {
							gone(id)
							if !fits("550 *: lies in * lock *", r) && !fits("550 *: no such file or directory", r) &&
								!fits("451 *: a directory above it was moved meanwhile", r) { // the lock was broken meanwhile
								t.Errorf("STOR: %s", r)
							}
							c.ask("RMD " + dir)
							continue
						}
						note(id, true)
						if turn%5 == 4 {
							c.Close() // on_disconnect = release
							c = s.as("phoneacc")
							continue
						}
						if r := c.ask("DELE " + dir + "/f"); strings.HasPrefix(r, "250 ") {
							gone(id)
						} else if !fits("550 *: lies in the lock *", r) {
							t.Logf("DELE of %s: %s", id, r)
						}
						c.ask("RMD " + dir)
					}
					c.Close()
				})
			}
			clients.Wait()
			close(done)
			breakers.Wait()
			s.until("all sessions but the administrator's are over", func() bool {
				sessions := s.table.Sessions()
				return len(sessions) <= 1
			})
			for _, n := range []lock.Name{"/gone/0", "/gone/1"} {
				if status, ok := s.table.Get(n); ok {
					s.table.Break(t.Context(), n, status.Holds[0].Token, lock.Owner{Account: "boss"}, "")
				}
			}
			if err := s.driver.Sweep(t.Context()); err != nil {
				t.Error(err)
			}
			left := make(map[string]int)
			for l := range strings.Lines(s.leftovers()) {
				fields := strings.Fields(l)
				left[fields[len(fields)-1]]++
			}
			for id := range stored {
				if left[id] != 1 {
					t.Errorf("%s is left over %d times", id, left[id])
				}
				delete(left, id)
			}
			if len(left) > 0 {
				t.Errorf("left over though nobody left it: %q", slices.Sorted(maps.Keys(left)))
			}
			s.wantNothingHidden()
			t.Logf("%d were left over", len(stored))
		})
	}
}
