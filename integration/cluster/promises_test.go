//go:build linux

package cluster

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

const hour = `
[[lock]]
match = "/released/**"
max_age = "1h"
max_idle = "0"
on_disconnect = "release"
[[lock]]
match = "/**"
max_age = "1h"
max_idle = "0"
`

// beats waits until the active server has written n beats.
func (c *cluster) beats(t testing.TB, n int64) {
	t.Helper()
	before := c.version(t, "beat")
	harness.Await(t, "the active server writes beats", func() bool { return c.version(t, "beat") >= before+n })
}

// The wall clocks of two servers differ by minutes, and so do their times since boot. Over a failover a lock keeps its age, holder, token and
// history.
func TestLocksKeepTheirAgesHoldersTokensAndHistory(t *testing.T) {
	t.Parallel()
	for _, failover := range []struct {
		name string
		do   func(*server)
	}{{"killed", (*server).kill}, {"terminated", (*server).terminate}} {
		t.Run(failover.name, func(t *testing.T) {
			t.Parallel()
			c := start(t, setup{tables: hour, skewed: true})
			a := c.active(t)
			b := c.others(a)[0]
			holder := c.session(t, account)
			first := harness.Token(holder.Want(257, "MKD /job"))
			holder.Want(257, "MKD /released/job")
			c.beats(t, 5)                       // the standby compares the clocks
			for _, s := range []*server{b, a} { // the standby first: to it a late beat is normal
				s.clock.Wall += 20 * time.Minute
				s.clock.Boot += 20 * time.Minute
				s.clock.Write(t)
			}
			failover.do(a)
			other := c.session(t, "other")
			if c.server(other.Address()) != b {
				t.Fatal("the same server is active")
			}
			held, left := harness.Ages(t, other.Want(211, "SITE LOCK INFO /job"))
			const slack = 4 * time.Minute // the wall clocks are 7 minutes apart
			if held < 20*time.Minute-slack || held > 20*time.Minute+slack || left < 40*time.Minute-slack || left > 40*time.Minute+slack {
				t.Errorf("held for %v, expires in %v; want 20m and 40m", held, left)
			}
			other.Want(550, "MKD /job", "held by "+account)
			second := harness.Token(other.Want(257, "MKD /another"))
			harness.Await(t, "a lock with on_disconnect = release is free", func() bool {
				r, err := other.Try("MKD /released/job")
				return err == nil && r.Code == 257
			})
			if second <= first {
				t.Errorf("token %d after %d", second, first)
			}
			if status, out := b.run(t, "history", "/job"); status != 0 || !strings.Contains(out, strconv.FormatUint(first, 10)) {
				t.Errorf("history: %d %s", status, out)
			}
			again := c.session(t, account)
			again.Want(250, "RMD /job")
			third := harness.Token(other.Want(257, "MKD /job"))
			if third <= second {
				t.Errorf("token %d after %d", third, second)
			}
		})
	}
}
