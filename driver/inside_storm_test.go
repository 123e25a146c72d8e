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

// Clients take locks, store in them and give them back, while locks are broken, connections cut and others look: each
// file that was stored and not removed by its holder is left over, once, and nobody finds another's.
func TestNoFileInALockIsLostOrFoundByTheNextHolder(t *testing.T) {
	eachMode(t, func(t *testing.T, s *server) {
		var mu sync.Mutex
		stored := make(map[string]bool) // by content
		keep := func(id string, is bool) {
			mu.Lock()
			defer mu.Unlock()
			if stored[id] = true; !is {
				delete(stored, id)
			}
		}
		var clients, others sync.WaitGroup
		done := make(chan struct{})
		until := func(f func(i int)) {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				case <-time.After(500 * time.Microsecond):
					f(i)
				}
			}
		}
		boss, reader := s.as("boss"), s.as("reader")
		others.Go(func() {
			until(func(i int) {
				if status, ok := s.table.Get(lock.Name(fmt.Sprintf("/gone/%d", i%2))); ok {
					boss.ask(fmt.Sprintf("SITE LOCK BREAK %d %s", status.Holds[0].Token, status.Name))
				}
			})
		})
		others.Go(func() {
			until(func(i int) {
				command := []string{"NLST /gone/0", "LIST -a /gone", "MLSD /gone/1"}[i%3]
				if got, r := reader.download(command); !fits("226 *", r) && !fits("550 *", r) || strings.Contains(got, "ftplockd") {
					t.Errorf("%s: %q, %s", command, got, r)
				}
			})
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
					keep(id, true)
					if got, _ := c.download("NLST " + dir); got != "" && got != dir+"/f\r\n" {
						t.Errorf("%s holds %q", dir, got)
					}
					r := c.upload("STOR "+dir+"/f", id)
					switch {
					case !strings.HasPrefix(r, "226 "):
						keep(id, false)
						if !fits("550 *: lies in * lock *", r) && !fits("550 *: no such file or directory", r) &&
							!fits("451 *: a directory above it was moved meanwhile", r) { // the lock was broken meanwhile
							t.Errorf("STOR: %s", r)
						}
					case turn%5 == 4:
						c.Close() // on_disconnect = release
						c = s.as("phoneacc")
						continue
					default:
						if r := c.ask("DELE " + dir + "/f"); strings.HasPrefix(r, "250 ") {
							keep(id, false)
						}
					}
					c.ask("RMD " + dir)
				}
				c.Close()
			})
		}
		clients.Wait()
		close(done)
		others.Wait()
		boss.Close()
		reader.Close()
		s.alone()
		for _, n := range []lock.Name{"/gone/0", "/gone/1"} {
			if status, ok := s.table.Get(n); ok {
				s.table.Break(t.Context(), n, status.Holds[0].Token, lock.Owner{Account: "boss"}, "")
			}
		}
		if err := s.driver.Sweep(t.Context()); err != nil {
			t.Error(err)
		}
		var left []string
		for l := range strings.Lines(s.leftovers()) {
			fields := strings.Fields(l)
			left = append(left, fields[len(fields)-1])
		}
		slices.Sort(left)
		if want := slices.Sorted(maps.Keys(stored)); !slices.Equal(left, want) {
			t.Errorf("left over: %q, want %q", left, want)
		}
	})
}
