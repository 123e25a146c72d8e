package integration

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

const released = `
[[lock]]
match = "/locks/**"
max_age = "1h"
max_idle = "0"
on_disconnect = "release"
`

// reset has the kernel send RST.
func (s *session) reset() {
	if err := s.Conn.(*net.TCPConn).SetLinger(0); err != nil {
		s.T.Error(err)
	}
	s.Conn.Close()
}

// A client closes in order without reading the 257: the grant is undone, whether the 257 came before, between or behind
// shutdown and close.
func TestAGrantThatTheClientDidNotReadIsUndone(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"", "directories = false\ndurable = false\n"} {
		s := startServer(t, "[locks]\n"+mode+hour+"release = \"session\"\n")
		other := s.session("other")
		for i := range count(50, 500) {
			c := s.session(account)
			c.says("MKD /locks/job")
			if i%2 == 1 {
				time.Sleep(rand.N(time.Millisecond)) // any moment will do
			}
			if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if i%3 == 2 {
				time.Sleep(rand.N(time.Millisecond))
			}
			c.Conn.Close()
			harness.Await(t, "the lock comes free", func() bool { return other.wantEither("MKD /locks/job").Code == 257 })
			other.Want(250, "RMD /locks/job")
		}
		if history := s.command("history", "/locks/job"); !strings.Contains(history, " undelivered ") {
			t.Errorf("the history has no grant that was not delivered:\n%s", history)
		}
	}
}

// A client reads its 257, and its connection is reset, soon or late: the lock stands.
func TestAResetLeavesTheGrantsThatTheClientReceived(t *testing.T) {
	t.Parallel()
	s := startServer(t, hour+"release = \"session\"\n")
	other := s.session("other")
	check := func(name string) {
		t.Helper()
		s.onlySessionOf(t, "other")
		other.Want(550, "MKD "+name, "held by "+account)
	}
	for i, after := range []time.Duration{0, 0, 0, time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond, 300 * time.Millisecond} {
		name := fmt.Sprint("/locks/job", i)
		c := s.session(account)
		c.Want(257, "MKD "+name)
		time.Sleep(after)
		c.reset()
		check(name)
	}
	// Two connections of one job: the silent one is reset while the other one works.
	silent, busy := s.session(account), s.session(account)
	for _, c := range []*session{silent, busy} {
		c.Want(200, "SITE LOCK AS job")
	}
	silent.Want(257, "MKD /locks/shared")
	upload := busy.begin("STOR /locks/shared/file")
	silent.reset()
	harness.Await(t, "the silent session ends", func() bool { return len(s.sessions(account)) == 1 })
	upload.Close()
	busy.WantReply(226)
	busy.Conn.Close()
	check("/locks/shared")
}
