package integration

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// TestAborAtAnyMomentLeavesReplyAndFileInAgreement sends ABOR at random moments. The reply to the transfer is 226 if the upload was published or the
// download is complete, else 426 or 425. ABOR has a reply of its own.
func TestAborAtAnyMomentLeavesReplyAndFileInAgreement(t *testing.T) {
	t.Parallel()
	s := startServer(t, "[files]\ndurable = false\n"+defaults)
	content := bytes.Repeat([]byte("0123456789abcdef"), 16<<10)
	large := bytes.Repeat(content, 32) // it takes a few milliseconds
	s.write("down", string(large))
	for _, way := range []string{"passive", "active"} {
		t.Run("upload, "+way, func(t *testing.T) {
			t.Parallel()
			c, name := s.session(account), "up-"+way
			c.Want(200, "TYPE I")
			s.write(name, "old")
			outcomes := make(outcomes)
			for outcomes.wanted(t, count(40, 1000)) {
				x := c.exchange(way, "STOR /"+name, outcomes.pause(), func(data net.Conn) { _, _ = data.Write(content) })
				outcomes[x.Code]++
				want := map[bool]string{true: string(content), false: "old"}[x.Code == 226]
				if got := s.read(name); got != want {
					t.Fatalf("%d, but the file has %d bytes", x.Code, len(got))
				}
				s.write(name, "old")
			}
		})
		t.Run("download, "+way, func(t *testing.T) {
			t.Parallel()
			c := s.session(account)
			c.Want(200, "TYPE I")
			outcomes := make(outcomes)
			for outcomes.wanted(t, count(40, 1000)) {
				var got []byte
				x := c.exchange(way, "RETR /down", outcomes.pause(), func(data net.Conn) { got, _ = io.ReadAll(data) })
				outcomes[x.Code]++
				if x.Code == 226 && !bytes.Equal(got, large) {
					t.Fatalf("226, but %d bytes have come", len(got))
				}
			}
		})
	}
	t.Cleanup(func() {
		if left := s.unfinished(); len(left) > 0 {
			t.Errorf("left over: %v", left)
		}
	})
}

// outcomes counts the replies to transfers.
type outcomes map[int]int

// wanted reports whether another transfer is wanted: at least n, and as many as it takes to see a complete and an aborted one.
func (o outcomes) wanted(t *testing.T, n int) bool {
	complete, all := o[226], o.all()
	if all > 100*n {
		t.Errorf("replies %v, want 226 and another one", o)
		return false
	}
	done := all >= n && complete > 0 && complete < all
	if done {
		t.Log("replies:", o)
	}
	return !done
}

func (o outcomes) all() (n int) {
	for _, m := range o {
		n += m
	}
	return n
}

// pause returns a random time between a transfer and its ABOR. It grows until a transfer has been complete.
func (o outcomes) pause() time.Duration {
	most := 3 * time.Millisecond
	if o[226] == 0 {
		most += time.Duration(o.all()) * 5 * time.Millisecond
	}
	return rand.N(most)
}

// exchange runs a transfer, sends ABOR after a time, and returns the reply to the transfer.
func (c *session) exchange(way, line string, after time.Duration, move func(net.Conn)) harness.Reply {
	c.T.Helper()
	connect, end := c.prepare(way)
	var moving sync.WaitGroup
	moving.Go(func() {
		data, err := connect()
		if err != nil {
			return // aborted before
		}
		defer data.Close()
		move(data)
	})
	c.says(line)
	time.Sleep(after)
	c.says("ABOR")
	r := c.finalReply()
	c.WantReply(226) // to ABOR
	end()            // the server does not connect any more
	moving.Wait()
	return r
}

// finalReply reads a reply that is not a preliminary one.
func (c *session) finalReply() harness.Reply {
	c.T.Helper()
	for {
		r, err := c.ReadReply()
		if err != nil {
			c.T.Fatal(err)
		}
		if r.Code >= 200 {
			return r
		}
	}
}

// prepare sends EPSV or EPRT, and returns a function that opens the data connection. end makes it stop waiting for the server.
func (c *session) prepare(way string) (connect func() (net.Conn, error), end func()) {
	c.T.Helper()
	if way == "passive" {
		port, err := c.EPSV()
		if err != nil {
			c.T.Fatal(err)
		}
		return func() (net.Conn, error) { return net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), patience) }, func() {}
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		c.T.Fatal(err)
	}
	if err := l.(*net.TCPListener).SetDeadline(time.Now().Add(patience)); err != nil {
		c.T.Fatal(err)
	}
	end = func() { l.Close() }
	c.T.Cleanup(end)
	c.Want(200, fmt.Sprintf("EPRT |1|127.0.0.1|%d|", l.Addr().(*net.TCPAddr).Port))
	return func() (net.Conn, error) {
		defer l.Close()
		return l.Accept()
	}, end
}

// TestADownloadEndsAtOnceForAClientThatReadsTheReplyFirst reads the 226 before it closes the data connection.
func TestADownloadEndsAtOnceForAClientThatReadsTheReplyFirst(t *testing.T) {
	t.Parallel()
	s := startServer(t, defaults)
	s.write("file", "content")
	c := s.session(account)
	for _, line := range []string{"RETR /file", "LIST /", "NLST /", "MLSD /"} {
		promptly(t, line, 500*time.Millisecond, func() time.Duration {
			began := time.Now()
			data := c.begin(line)
			defer data.Close()
			if _, err := io.ReadAll(data); err != nil {
				t.Fatal(err)
			}
			c.WantReply(226)
			return time.Since(began)
		})
	}
}

// TestAriaDownloadsWithoutAPause: aria2 reads one reply at a time, and stalls if the 226 arrives together with the 150. So the server waits before the
// 226. On a busy machine some downloads still stall; if all did, they would take more than a minute.
func TestAriaDownloadsWithoutAPause(t *testing.T) {
	t.Parallel()
	harness.Need(t, "aria2c")
	s := startServer(t, defaults)
	dir := t.TempDir()
	var list strings.Builder
	for i := range 45 {
		name := fmt.Sprintf("file%d", i)
		s.write(name, strings.Repeat("x", 1+i*100))
		fmt.Fprintf(&list, "ftp://%s/%s\n", s.v4, name)
	}
	input := filepath.Join(dir, "list")
	writeFile(t, input, []byte(list.String()))
	began := time.Now()
	r := run(t, "aria2c", "--no-conf", "--ftp-user="+account, "--ftp-passwd="+password, "--dir="+dir, "-j", "3", "-i", input,
		"--timeout=5", "--max-tries=0")
	if r.status != 0 {
		t.Fatalf("exit status %d: %s", r.status, r.out)
	}
	if d := time.Since(began); d > 50*time.Second {
		t.Errorf("45 downloads took %v", d)
	}
	for i := range 45 {
		info, err := os.Stat(filepath.Join(dir, fmt.Sprintf("file%d", i)))
		if err != nil || info.Size() != int64(1+i*100) {
			t.Errorf("file%d: %v, %v", i, info, err)
		}
	}
}
