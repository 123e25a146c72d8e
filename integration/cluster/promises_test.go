//go:build linux

package cluster

import (
	"net"
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

// beats waits until the active server has told of its clock so often.
func (c *cluster) beats(t testing.TB, n int64) {
	t.Helper()
	before := c.version(t, "beat")
	harness.Await(t, "the active server tells of its clock", func() bool { return c.version(t, "beat") >= before+n })
}

// Two servers whose wall clocks are minutes apart, and which were booted at other times: a lock is as old for the second one as it was
// for the first, and its holder, token and history are the same.
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
			c.beats(t, 5)                       // what the standby needs to know the clock
			for _, s := range []*server{b, a} { // the standby first: clocks that are late are nothing new to it
				s.clock.Wall += 20 * time.Minute
				s.clock.Boot += 20 * time.Minute
				s.clock.Write(t)
			}
			failover.do(a)
			other := c.session(t, "other")
			if c.server(other.Address()) != b {
				t.Fatal("nobody has taken over")
			}
			held, left := harness.Ages(t, other.Want(211, "SITE LOCK INFO /job"))
			const slack = 4 * time.Minute // the wall clocks are 7 minutes apart
			if held < 20*time.Minute-slack || held > 20*time.Minute+slack || left < 40*time.Minute-slack || left > 40*time.Minute+slack {
				t.Errorf("held for %v, expires in %v; want 20m and 40m", held, left)
			}
			other.Want(550, "MKD /job", "held by "+account)
			second := harness.Token(other.Want(257, "MKD /another"))
			harness.Await(t, "a lock that its holder's end releases is free", func() bool {
				r, err := other.Try("MKD /released/job")
				return err == nil && r.Code == 257
			})
			if second <= first {
				t.Errorf("token %d was given after %d", second, first)
			}
			if status, out := b.run(t, "history", "/job"); status != 0 || !strings.Contains(out, strconv.FormatUint(first, 10)) {
				t.Errorf("history: %d %s", status, out)
			}
			again := c.session(t, account)
			again.Want(250, "RMD /job")
			third := harness.Token(other.Want(257, "MKD /job"))
			if third <= second {
				t.Errorf("token %d was given after %d", third, second)
			}
		})
	}
}

// Who waits at a server that steps down is told 421, and so is everybody else; the next one serves within seconds.
func TestSessionsAndQueuesEndWithATerm(t *testing.T) {
	t.Parallel()
	c := start(t, setup{tables: hour, ttl: 20 * time.Second})
	a := c.active(t)
	c.session(t, account).Want(257, "MKD /job")
	waiter, idle := c.session(t, "other"), c.session(t, "other")
	waiter.Want(200, "SITE WAIT 600")
	if err := waiter.Send("MKD /job"); err != nil {
		t.Fatal(err)
	}
	r := a.process()
	begin := time.Now()
	if status, out := a.run(t, "cluster", "step-down"); status != 0 {
		t.Fatalf("step-down: %d %s", status, out)
	}
	t.Logf("step-down took %v", time.Since(begin))
	for name, s := range map[string]*harness.Session{"who waits": waiter, "who is idle": idle} {
		var last harness.Reply
		for {
			next, err := s.ReadReply()
			if err != nil {
				break
			}
			last = next
		}
		if last.Code != 421 {
			t.Errorf("%s is told %v, want 421", name, last)
		}
	}
	select {
	case <-r.exited:
	case <-time.After(patience):
		t.Fatal("it does not end")
	}
	if got := r.cmd.ProcessState.ExitCode(); got != exitDeposed {
		t.Errorf("exit status %d, want %d", got, exitDeposed)
	}
	next := c.session(t, "other")
	if c.server(next.Address()) == a {
		t.Error("it has taken over from itself")
	}
	next.Want(550, "MKD /job", "held by "+account)
}

// A standby does not listen for clients, and says at its health address who is active.
func TestAStandbyServesHealthOnly(t *testing.T) {
	t.Parallel()
	c := start(t, setup{tables: hour})
	a := c.active(t)
	b := c.others(a)[0]
	harness.Await(t, "the standby is healthy", func() bool { return b.get("/healthz").Code == 200 })
	if conn, err := net.Dial("tcp", b.address); err == nil {
		conn.Close()
		t.Error("a standby accepts connections of clients")
	}
	harness.Await(t, "the standby knows who is active", func() bool {
		r := b.get("/readyz")
		return r.Code == 503 && strings.Contains(r.Text, "standby")
	})
	if r := a.get("/readyz"); r.Code != 200 {
		t.Errorf("the active server is not ready: %v", r)
	}
	status, out := b.run(t, "cluster")
	t.Logf("ftplockd cluster: %d\n%s", status, out)
	if status != 0 {
		t.Errorf("ftplockd cluster: %d %s", status, out)
	}
}

// A server that does not reach etcd refuses what changes locks, keeps its sessions, and goes on when etcd is back.
func TestAServerWithoutEtcdKeepsItsSessions(t *testing.T) {
	t.Parallel()
	c := start(t, setup{members: 3, tables: hour, ttl: time.Minute, timeout: time.Second})
	s := c.session(t, account)
	s.Want(257, "MKD /job")
	for _, i := range []int{0, 1} {
		c.etcd.Stop(i)
	}
	r, err := s.Try("MKD /another")
	if err != nil || r.Code != 451 {
		t.Errorf("without etcd: %v, %v, want 451", r, err)
	}
	for _, i := range []int{0, 1} {
		c.etcd.Continue(i)
	}
	harness.Await(t, "locks are granted again", func() bool {
		r, err := s.Try("MKD /third")
		if err != nil {
			t.Fatal(err)
		}
		return r.Code == 257
	})
	s.Want(250, "RMD /job")
}
