package driver

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// Who has hung up when its turn comes gets no grant, not even one that is taken back: the tokens tell. A grant takes
// one, and so does a release.
func TestNoLockIsGrantedToAWaiterThatHasHungUp(t *testing.T) {
	s := start(t, func(o *setup) {
		o.rules = []lock.Rule{{Match: "/locks/*", Contention: &lock.Contention{Wait: time.Minute}}}
	})
	holder := s.as("phoneacc")
	last := 0
	for range 50 {
		r := holder.ask("MKD /locks/a")
		token, err := strconv.Atoi(strings.TrimSuffix(strings.Fields(r)[4], ","))
		if err != nil || last > 0 && token != last+2 {
			t.Fatalf("the last token was %d: %s, %v", last, r, err)
		}
		last = token
		waiter := s.as("other")
		waiter.send("MKD /locks/a\r\n")
		s.until("it waits", func() bool { status, _ := s.table.Get("/locks/a"); return status.Waiting == 1 })
		waiter.tcp.Close()
		holder.want("RMD /locks/a", "250 *")
		s.until("its session has ended", func() bool { return len(s.table.Sessions()) == 1 })
		if s.held("/locks/a") {
			t.Fatal("the lock is held")
		}
	}
}
