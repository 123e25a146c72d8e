package integration

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// eachSender runs a test for every client.
func eachSender(t *testing.T, all []uploader, test func(t *testing.T, u uploader)) {
	t.Helper()
	for _, u := range all {
		t.Run(u.name, func(t *testing.T) {
			t.Parallel()
			if u.need != "" {
				harness.Need(t, u.need)
			}
			test(t, u)
		})
	}
}

// kind returns the type of the i-th upload: A and I alternate.
func kind(i int) string { return []string{"A", "I"}[i%2] }

// hangUpLate is for tests that end the connections of a client one after the other. On a busy machine more than the default of 2 ms may pass between
// them.
const hangUpLate = "[files]\nhang_up = \"200ms\"\n"

func TestKilledSendersPublishNothing(t *testing.T) {
	t.Parallel()
	s := startServer(t, tlsTables(t, t.TempDir())+hangUpLate+defaults)
	eachSender(t, slices.Concat(senders, secureSenders()), func(t *testing.T, u uploader) {
		times := count(4, 100)
		if u.secure {
			times = count(2, 100)
		}
		for i := range times {
			arrived := int64(i%25) * 20_000 // the first half megabyte comes quickly
			c := s.send(t, u, kind(i), arrived)
			c.kill()
			if n := c.discarded(`hung up|was cut|close_notify`); n <= arrived {
				t.Errorf("%d bytes are logged, more than %d had come", n, arrived)
			}
		}
	})
}

func TestCleanUploadsAreNeverRefused(t *testing.T) {
	t.Parallel()
	s := startServer(t, tlsTables(t, t.TempDir())+"[files]\ndurable = false\n"+defaults)
	files := filesOfAllSizes(t)
	eachSender(t, slices.Concat(senders, secureSenders()), func(t *testing.T, u uploader) {
		dir := strings.NewReplacer("::", "-", " ", "-").Replace(u.name)
		if err := os.Mkdir(s.path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
		uploads := count(8, 2000)
		if u.secure {
			uploads = count(3, 200)
		}
		for i := range uploads {
			file := files[len(files)-1-i%len(files)] // the largest first
			path := fmt.Sprintf("/%s/%d", dir, i)
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			cmd := u.command(t, upload{s, "I", path, u.secure})
			cmd.Stdin = bytes.NewReader(content)
			if r := finish(t, cmd); r.status != 0 {
				t.Errorf("%s, upload %d: exit status %d: %s", file, i, r.status, r.out)
			} else if got := s.read(path); got != string(content) {
				t.Errorf("%s, upload %d: %d bytes", file, i, len(got))
			}
		}
	})
}

// filesOfAllSizes writes files to upload. Their sizes are limits: no byte, a packet, a page, a pipe, a read of the server; and several reads.
func filesOfAllSizes(t *testing.T) (files []string) {
	t.Helper()
	for _, size := range []int{0, 1, 1448, 4096, 65_536, 110_000, 262_145, 3 << 20} {
		file := filepath.Join(t.TempDir(), fmt.Sprint(size))
		content := bytes.Repeat([]byte("all of it\r\n"), size/11+1)[:size]
		writeFile(t, file, content)
		files = append(files, file)
	}
	return files
}

// sendAll starts an upload of every client.
func (s *server) sendAll(t *testing.T) (all []*sending) {
	t.Helper()
	for i, u := range senders {
		if _, err := exec.LookPath(u.need); u.need == "" || err == nil {
			all = append(all, s.send(t, u, kind(i), 10_000))
		}
	}
	return all
}

// TestAStopPastItsDeadlineDiscardsUploads stops a server that gives transfers two seconds in place of twenty.
func TestAStopPastItsDeadlineDiscardsUploads(t *testing.T) {
	t.Parallel()
	s := newBroken(t, "")
	s.configure(defaults)
	s.start()
	all := s.sendAll(t)
	began := time.Now()
	s.signal(syscall.SIGTERM)
	s.waitExit()
	if d := time.Since(began); d < 2*time.Second {
		t.Errorf("the server stopped after %v", d)
	}
	for _, c := range all {
		c.discarded(`the server ended the session|hung up`)
		c.complains()
	}
}

func TestASecondSignalEndsTheServerAtOnce(t *testing.T) {
	t.Parallel()
	s := startServer(t, defaults)
	c := s.send(t, senders[0], "I", 0)
	s.signal(syscall.SIGTERM)
	s.log.Await(t, "msg=stopping", 1)
	s.signal(syscall.SIGTERM)
	s.waitExit()
	if got := s.read(c.path); got != "old" {
		t.Errorf("published %d bytes", len(got))
	}
	c.complains()
	s.start()
	c.untouched()
}
