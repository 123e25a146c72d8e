package integration

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// TestAKilledServerLeavesWholeFiles kills the server while two clients replace each file repeatedly. Each file is then whole: the last acknowledged one
// of its uploader, or the next.
func TestAKilledServerLeavesWholeFiles(t *testing.T) {
	t.Parallel()
	const names, uploaders = 3, 6
	s := startServer(t, "[files]\ndurable = false\n"+defaults)
	for round := range count(3, 60) {
		var acknowledged [uploaders]int
		var all sync.WaitGroup
		kill := make(chan struct{}, 1)
		for i := range uploaders {
			c := s.session(account)
			c.Want(200, "TYPE I")
			all.Go(func() {
				for n := 1; ; n++ {
					if c.Store(fmt.Sprint("/f", i%names), bytes.Repeat(fmt.Appendf(nil, "%d %d\n", i, n), wholeLines)) != nil {
						return
					}
					if acknowledged[i] = n; n == 5+round%5 {
						select {
						case kill <- struct{}{}:
						default:
						}
					}
				}
			})
		}
		<-kill
		s.kill()
		all.Wait()
		left := len(s.unfinished())
		for name := range names {
			content := s.read(fmt.Sprint("f", name))
			var i, n int
			if _, err := fmt.Sscan(content, &i, &n); err != nil || !whole([]byte(content)) || i%names != name || n < acknowledged[i] || n > acknowledged[i]+1 {
				t.Errorf("/f%d has %d bytes of upload %d of client %d, which has replies for %d: %v", name, len(content), n, i, acknowledged[i], err)
			}
		}
		s.start()
		harness.Await(t, "what is left is swept", func() bool { return len(s.unfinished()) == 0 })
		t.Logf("%d temporary files were left", left)
	}
}
