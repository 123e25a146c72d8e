package driver

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// downloads are some of each kind.
var downloads = []struct {
	name, kind, command string
	secure              bool
}{
	{"binary", "TYPE I", "RETR /f", false},
	{"ASCII", "TYPE A", "RETR /f", false},
	{"a listing", "TYPE A", "LIST /", false},
	{"TLS", "TYPE I", "RETR /f", true},
}

// fetched is a client that has read all that it fetched, and its data connection, not yet closed.
func (s *server) fetched(kind, command string, secure bool) (*conn, net.Conn) {
	s.t.Helper()
	c := s.dial()
	if secure {
		c.upgrade()
	}
	c.login("phoneacc")
	c.want(kind, "200 *")
	tcp := c.data()
	c.want(command, "150 *")
	if got, err := io.ReadAll(c.secured(tcp)); len(got) == 0 || err != nil {
		s.t.Fatalf("%q, %v", got, err)
	}
	return c, tcp
}

// A client that reads one reply at a time never sees a second one that comes with the first.
func TestAClientHasReadWhatItFetchedWhenItIsToldSo(t *testing.T) {
	for _, tt := range downloads {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t, secure)
			s.write("/f", "content")
			for range 50 { // until the machine is quick enough
				began := time.Now()
				c, data := s.fetched(tt.kind, tt.command, tt.secure)
				c.tcp.SetReadDeadline(time.Now().Add(lastWord / 4))
				n, err := c.tcp.Read(make([]byte, 1))
				early := n > 0 || c.in.Buffered() > 0
				if early && time.Since(began) >= lastWord { // it had its time
					continue
				}
				if early || !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Fatalf("before the client ends the connection: %d and %d bytes, %v", n, c.in.Buffered(), err)
				}
				data.Close()
				c.check("the end", c.reply(), "226 *")
				return
			}
			t.Error("the machine is too slow for this test")
		})
	}
}

// Others end the data connection when they are told that it is over.
func TestAClientThatWantsToBeToldFirstIsWaitedForNoLonger(t *testing.T) {
	for _, tt := range downloads {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t, secure)
			s.write("/f", "content")
			c, _ := s.fetched(tt.kind, tt.command, tt.secure)
			c.check("the end", c.reply(), "226 *")
		})
	}
}

// So much that all ways of moving bytes are used: through this process, and within the kernel.
func TestLargeTransfersArriveAsTheyWereSent(t *testing.T) {
	content := make([]byte, 3_456_789)
	rand.NewChaCha8([32]byte{}).Read(content)
	inEachMode(t, func(t *testing.T, s *server, dial func(string) *conn) {
		c := dial("phoneacc")
		c.want("TYPE I", "200 *")
		c.store("/f", string(content))
		if got, err := os.ReadFile(filepath.Join(s.root, "f")); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%d bytes came, %v", len(got), err)
		}
		if got := c.fetch("RETR /f"); got != string(content) {
			t.Errorf("%d bytes went back", len(got))
		}
		c.want("REST 1000000", "350 *")
		c.store("/f", string(content[1_000_000:]))
		if got, err := os.ReadFile(filepath.Join(s.root, "f")); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%d bytes came after REST, %v", len(got), err)
		}
	})
}

// The file becomes shorter while it is sent: a client must not take what came for all.
func TestADownloadOfAFileThatShrinksIsNoSuccess(t *testing.T) {
	for _, kind := range []string{"I", "A"} {
		s := start(t)
		s.sparse("/large")
		c := s.as("phoneacc")
		c.want("TYPE "+kind, "200 *")
		nc := c.data()
		c.want("RETR /large", "150 *")
		if _, err := io.ReadFull(nc, make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(filepath.Join(s.root, "large"), 8<<20); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, nc) // the reply tells how it ended
		c.check("TYPE "+kind, c.reply(), "451 /large: the file has become shorter meanwhile")
	}
}
