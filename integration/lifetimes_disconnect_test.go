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

// goodbyes are the ways in which a session ends before its locks do.
var goodbyes = []struct {
	name  string
	leave func(s *server, c *session)
}{
	{"QUIT", func(_ *server, c *session) { c.Want(221, "QUIT") }},
	{"EOF", func(_ *server, c *session) { c.Conn.Close() }},
	{"reset", func(_ *server, c *session) { c.reset() }},
	{"kick", func(s *server, _ *session) { s.command("kick", s.sessions(account)[0]) }},
}

// reset has the kernel send RST.
func (s *session) reset() {
	if err := s.Conn.(*net.TCPConn).SetLinger(0); err != nil {
		s.T.Error(err)
	}
	s.Conn.Close()
}

func TestIdleSessionIsCutOffButNotBeforeItsLockEnds(t *testing.T) {
	t.Parallel()
	const none = "max_age = \"0s\"\nmax_idle = \"0s\""
	for _, limits := range []string{"max_age = \"5s\"", "max_age = \"0s\"\nmax_idle = \"5s\"", none} {
		t.Run(strings.ReplaceAll(limits, "\n", ", "), func(t *testing.T) {
			t.Parallel()
			s := startServer(t, "[ftp]\nidle_timeout = \"2s\"\n[[lock]]\nmatch = \"/locks/**\"\n"+limits+"\n")
			c := s.session(account)
			sent := time.Now()
			c.Want(257, "MKD /locks/job")
			for range 2 { // sessions without a lock are cut off, one after the other
				s.session("other").WantReply(421, "idle")
			}
			if limits == none {
				c.Want(250, "RMD /locks/job") // it is there still, after more than two idle timeouts
				return
			}
			c.WantReply(421, "idle")
			if held := time.Since(sent); held < 5*time.Second {
				t.Errorf("cut off after %v, the lock was to last 5s", held)
			}
			s.session("other").Want(257, "MKD /locks/job")
		})
	}
}

func TestDuringTheGraceOnlyTheSameJobTakesTheLockUp(t *testing.T) {
	t.Parallel()
	s, clock := startStepped(t, graceful)
	first, other := s.session(account), s.session("other")
	first.Want(200, "SITE LOCK AS job-17")
	old := harness.Token(first.Want(257, "MKD /locks/job"))
	first.Want(257, "MKD /locks/lost")
	first.Conn.Close()
	s.inGrace(other, "/locks/job")
	s.inGrace(other, "/locks/lost")
	clock.pass(9 * time.Minute)
	other.Want(550, "MKD /locks/job", "held by "+account)
	s.session(account).Want(550, "MKD /locks/job", "held by "+account)
	second := s.session(account)
	second.Want(200, "SITE LOCK AS job-17")
	if adopted := harness.Token(second.Want(257, "MKD /locks/job", "expires in 1h0m0s")); adopted <= old {
		t.Errorf("taken up with token %d after %d", adopted, old)
	}
	clock.pass(time.Minute)
	s.log.Await(t, "lock=/locks/lost cause=disconnect", 1)
	other.Want(257, "MKD /locks/lost")
	other.wantAges("/locks/job", time.Minute, 59*time.Minute)
	second.Want(250, "RMD /locks/job")
}

// Uploads are cut in the middle, in the ways that end a connection at once; the file must be neither published nor
// lie about when the next holder is told that it has the lock.
func TestNextHolderNeverMeetsTheLastOnesBytes(t *testing.T) {
	t.Parallel()
	for _, goodbye := range goodbyes {
		if goodbye.name == "QUIT" {
			continue
		}
		t.Run(goodbye.name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, "[files]\ndurable = false\n"+released)
			other := s.session("other")
			for round := range count(5, 200) {
				s.write("phone.tsv", "old")
				c := s.session(account)
				c.Want(257, "MKD /locks/job")
				over := c.pour("/phone.tsv", rand.IntN(2_000_000))
				goodbye.leave(s, c)
				harness.Await(t, "the lock comes free", func() bool { return other.wantEither("MKD /locks/job").Code == 257 })
				if left := s.unfinished(); len(left) != 0 {
					t.Errorf("round %d: the next holder meets %v", round, left)
				}
				s.wantFile(t, "phone.tsv", "old")
				other.stores("/phone.tsv", "new")
				<-over
				s.wantFile(t, "phone.tsv", "new")
				other.Want(250, "RMD /locks/job")
				c.Conn.Close()
			}
		})
	}
}

// pour uploads without an end; it returns when so many bytes have gone. over is closed when the server takes no more.
func (s *session) pour(path string, arrived int) (over <-chan struct{}) {
	s.T.Helper()
	s.Want(200, "TYPE I")
	data := s.begin("STOR " + path)
	begun, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		defer data.Close()
		block := make([]byte, 64<<10)
		for sent := 0; ; {
			n, err := data.Write(block)
			if sent <= arrived && (sent+n > arrived || err != nil) {
				close(begun)
			}
			if sent += n; err != nil {
				return
			}
		}
	}()
	<-begun
	return ended
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
