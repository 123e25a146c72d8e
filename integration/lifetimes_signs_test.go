package integration

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// idle is a rule by which only the holder's signs of life matter.
const idle = `
[[lock]]
match = "/locks/**"
max_age = "0s"
max_idle = "10m"
`

// noted returns when the server knows of a sign of life that came after the last step of the clock.
func (s *server) noted(t *testing.T, c *session) {
	t.Helper()
	harness.Await(t, "the server takes note", func() bool {
		_, left := harness.Ages(t, c.Want(211, "SITE LOCK INFO /locks/job"))
		return left > 9*time.Minute
	})
}

func TestCommandUnderWayIsALastingSignOfLife(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"XMD5 /huge", // hashing it takes longer than the test
		"MKD /taken/job",
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			s, clock := startStepped(t, idle+"[[lock]]\nmatch = \"/taken/**\"\nmax_age = \"0s\"\nmax_idle = \"0s\"\nwait = \"24h\"\n")
			s.sparse("huge", 64<<30)
			c, other := s.session(account), s.session("other")
			other.Want(257, "MKD /taken/job")
			c.Want(257, "MKD /locks/job")
			c.says(line)
			for range 3 {
				clock.pass(15 * time.Minute)
				other.Want(211, "SITE LOCK INFO /locks/job", "held by "+account)
			}
			if err := c.Conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			if _, err := c.R.Peek(1); err == nil {
				t.Error("there is a reply: the command was not under way")
			}
			if line == "MKD /taken/job" {
				other.Want(250, "RMD /taken/job")
				c.WantReply(257, "/taken/job")
				c.Want(250, "RMD /locks/job")
			}
		})
	}
}

func TestSteadyTransferKeepsALockOfAShortIdleTime(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"STOR", "RETR"} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, "[[lock]]\nmatch = \"/locks/**\"\nmax_age = \"0s\"\nmax_idle = \"3s\"\n")
			s.sparse("large", 64<<30)
			c, other := s.session(account), s.session("other")
			c.Want(257, "MKD /locks/job")
			c.Want(200, "TYPE I")
			data := c.begin(verb + " /" + map[string]string{"STOR": "upload", "RETR": "large"}[verb])
			defer data.Close()
			move := func() (err error) {
				if verb == "STOR" {
					_, err = data.Write(make([]byte, 100))
				} else {
					_, err = io.CopyN(io.Discard, data, 8<<20)
				}
				return err
			}
			for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
				if err := move(); err != nil {
					t.Fatal(err)
				}
				other.Want(550, "MKD /locks/job", "held by "+account)
			}
			_ = data.(*net.TCPConn).SetLinger(0)
		})
	}
}
