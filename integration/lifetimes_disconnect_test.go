package integration

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"testing"
	"time"
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
	{"QUIT", func(_ *server, c *session) { c.want(221, "QUIT") }},
	{"EOF", func(_ *server, c *session) { c.conn.Close() }},
	{"reset", func(_ *server, c *session) { c.reset() }},
	{"kick", func(s *server, _ *session) { s.command("kick", s.sessions(account)[0]) }},
}

// reset has the kernel send RST.
func (s *session) reset() {
	if err := s.conn.(*net.TCPConn).SetLinger(0); err != nil {
		s.t.Error(err)
	}
	s.conn.Close()
}

func TestEndOfTheConnectionReleasesWhatItsRuleSays(t *testing.T) {
	t.Parallel()
	for _, goodbye := range goodbyes {
		t.Run(goodbye.name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, released+"[[lock]]\nmatch = \"/kept/**\"\n")
			c, other := s.session(account), s.session("other")
			c.want(257, "MKD /locks/job")
			c.want(257, "MKD /kept/job")
			c.want(257, "PWD") // so that a reset does not make the grants undelivered ones
			goodbye.leave(s, c)
			s.log.await(t, "lock=/locks/job cause=disconnect", 1)
			other.want(257, "MKD /locks/job")
			other.want(550, "MKD /kept/job", "held by "+account)
			s.session(account).want(250, "RMD /kept/job")
		})
	}
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
			c.want(257, "MKD /locks/job")
			for range 2 { // sessions without a lock are cut off, one after the other
				s.session("other").wantReply(421, "idle")
			}
			if limits == none {
				c.want(250, "RMD /locks/job") // it is there still, after more than two idle timeouts
				return
			}
			c.wantReply(421, "idle")
			if held := time.Since(sent); held < 5*time.Second {
				t.Errorf("cut off after %v, the lock was to last 5s", held)
			}
			s.session("other").want(257, "MKD /locks/job")
		})
	}
}

func TestDuringTheGraceOnlyTheSameJobTakesTheLockUp(t *testing.T) {
	t.Parallel()
	s, clock := startStepped(t, graceful)
	first, other := s.session(account), s.session("other")
	first.want(200, "SITE LOCK AS job-17")
	old := token(first.want(257, "MKD /locks/job"))
	first.want(257, "MKD /locks/lost")
	first.conn.Close()
	s.inGrace(other, "/locks/job")
	s.inGrace(other, "/locks/lost")
	clock.pass(9 * time.Minute)
	other.want(550, "MKD /locks/job", "held by "+account)
	s.session(account).want(550, "MKD /locks/job", "held by "+account)
	second := s.session(account)
	second.want(200, "SITE LOCK AS job-17")
	if adopted := token(second.want(257, "MKD /locks/job", "expires in 1h0m0s")); adopted <= old {
		t.Errorf("taken up with token %d after %d", adopted, old)
	}
	clock.pass(time.Minute)
	s.log.await(t, "lock=/locks/lost cause=disconnect", 1)
	other.want(257, "MKD /locks/lost")
	other.wantAges("/locks/job", time.Minute, 59*time.Minute)
	second.want(250, "RMD /locks/job")
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
				c.want(257, "MKD /locks/job")
				over := c.pour("/phone.tsv", rand.IntN(2_000_000))
				goodbye.leave(s, c)
				await(t, "the lock comes free", func() bool { return other.wantEither("MKD /locks/job").code == 257 })
				if left := s.unfinished(); len(left) != 0 {
					t.Errorf("round %d: the next holder meets %v", round, left)
				}
				if got := s.read("phone.tsv"); got != "old" {
					t.Errorf("round %d: the next holder finds %d bytes", round, len(got))
				}
				if err := other.store("/phone.tsv", []byte("new")); err != nil {
					t.Error(err)
				}
				<-over
				if got := s.read("phone.tsv"); got != "new" {
					t.Errorf("round %d: what the next holder wrote is %d bytes", round, len(got))
				}
				other.want(250, "RMD /locks/job")
				c.conn.Close()
			}
		})
	}
}

func TestNextHolderWaitsForAnUploadThatIsBeingSynced(t *testing.T) {
	t.Parallel()
	s := startServer(t, released)
	other := s.session("other")
	content := bytes.Repeat([]byte("all of it"), 4<<20)
	for round := range count(5, 50) {
		s.write("phone.tsv", "old")
		c := s.session(account)
		c.want(257, "MKD /locks/job")
		c.want(200, "TYPE I")
		data, err := c.open("STOR /phone.tsv")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := data.Write(content); err != nil {
			t.Fatal(err)
		}
		data.Close()
		time.Sleep(4*time.Millisecond + rand.N(10*time.Millisecond)) // any moment will do, once it has seen that c is there
		c.conn.Close()
		await(t, "the lock comes free", func() bool { return other.wantEither("MKD /locks/job").code == 257 })
		if left := s.unfinished(); len(left) != 0 {
			t.Errorf("round %d: the next holder meets %v", round, left)
		}
		if got := s.read("phone.tsv"); got != "old" && got != string(content) {
			t.Errorf("round %d: the next holder finds %d bytes", round, len(got))
		}
		other.want(250, "RMD /locks/job")
	}
}

// pour uploads without an end; it returns when so many bytes have gone. over is closed when the server takes no more.
func (s *session) pour(path string, arrived int) (over <-chan struct{}) {
	s.t.Helper()
	s.want(200, "TYPE I")
	data, err := s.open("STOR " + path)
	if err != nil {
		s.t.Fatal(err)
	}
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

func TestDownloadEndsBeforeTheLockOfItsSession(t *testing.T) {
	t.Parallel()
	s := startServer(t, released)
	s.write("large", "")
	if err := os.Truncate(s.path("large"), 1<<30); err != nil {
		t.Fatal(err)
	}
	c, other := s.session(account), s.session("other")
	c.want(257, "MKD /locks/job")
	c.want(200, "TYPE I")
	data, err := c.open("RETR /large")
	if err != nil {
		t.Fatal(err)
	}
	defer data.Close()
	if _, err := io.CopyN(io.Discard, data, 1<<20); err != nil {
		t.Fatal(err)
	}
	c.conn.Close()
	await(t, "the lock comes free", func() bool { return other.wantEither("MKD /locks/job").code == 257 })
	// What the kernel had taken is on its way; there is no more, and no end of file that could be taken for the file's.
	if n, _ := io.Copy(io.Discard, data); n > 64<<20 {
		t.Errorf("%d bytes came after the lock was free", n)
	}
}

// QUIT before the 226 may come from a program that fails, such as Python's `with ftplib.FTP()` at an exception. So an upload
// behind which QUIT was read is published only if ALLO has said how long it is.
func TestQuitKeepsTheLockUntilTheUploadIsOver(t *testing.T) {
	t.Parallel()
	const text = "more more more more more more more more more more "
	for _, tc := range []struct {
		name, announced string
		code            int
		left            string
	}{
		{"of announced length", fmt.Sprint("ALLO ", len(text)), 226, text},
		{"of unknown length", "NOOP", 426, "old"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, released)
			s.write("phone.tsv", "old")
			c, other := s.session(account), s.session("other")
			c.want(257, "MKD /locks/job")
			c.want(200, "TYPE I")
			c.want(200, tc.announced)
			data, err := c.open("STOR /phone.tsv")
			if err != nil {
				t.Fatal(err)
			}
			if err := c.send("QUIT"); err != nil {
				t.Fatal(err)
			}
			for piece := range strings.SplitAfterSeq(strings.TrimSuffix(text, " "), " ") {
				other.want(550, "MKD /locks/job", "held by "+account)
				if _, err := io.WriteString(data, piece); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := io.WriteString(data, " "); err != nil {
				t.Fatal(err)
			}
			data.Close()
			c.wantReply(tc.code)
			c.wantReply(221)
			await(t, "the lock comes free", func() bool { return other.wantEither("MKD /locks/job").code == 257 })
			if got := s.read("phone.tsv"); got != tc.left {
				t.Errorf("the next holder finds %q, want %q", got, tc.left)
			}
		})
	}
}

func TestGrantThatItsClientCannotHaveHeardIsUndone(t *testing.T) {
	t.Parallel()
	s := startServer(t, hour+"release = \"session\"\n")
	other := s.session("other")
	for _, tc := range []struct {
		name string
		end  func(t *testing.T, c *session)
		kept bool
	}{
		{"reset before the reply is read", func(t *testing.T, c *session) {
			if err := c.send("MKD /locks/job"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(rand.N(time.Millisecond)) // any moment will do
			c.reset()
		}, false},
		{"reset when the reply is there", func(t *testing.T, c *session) {
			if err := c.send("MKD /locks/job"); err != nil {
				t.Fatal(err)
			}
			if _, err := c.r.Peek(1); err != nil {
				t.Fatal(err)
			}
			c.reset()
		}, false},
		{"reset before any later command", func(_ *testing.T, c *session) {
			c.want(257, "MKD /locks/job")
			c.reset()
		}, false},
		{"reset after a later command", func(_ *testing.T, c *session) {
			c.want(257, "MKD /locks/job")
			c.want(200, "NOOP")
			c.reset()
		}, true},
		{"closed after the reply was read", func(_ *testing.T, c *session) {
			c.want(257, "MKD /locks/job")
			c.conn.Close()
		}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for range count(3, 300) {
				c := s.session(account)
				tc.end(t, c)
				s.onlySessionOf(t, "other")
				if tc.kept {
					other.want(211, "SITE LOCK INFO /locks/job", "held by "+account) // MKD would put it into the queue
					s.command("break", "/locks/job")
					continue
				}
				other.want(257, "MKD /locks/job")
				other.want(250, "RMD /locks/job")
			}
		})
	}
	if history := s.command("history", "/locks/job"); !strings.Contains(history, " undelivered ") {
		t.Errorf("the history knows of no grant that was not delivered:\n%s", history)
	}
}
