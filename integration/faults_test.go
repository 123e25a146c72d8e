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

// kind is the type of the i-th upload: both, by turns.
func kind(i int) string { return []string{"A", "I"}[i%2] }

// hangUpLate is for tests that end a client's connections one after the other: a busy machine may take longer between the two than the 2 ms that
// a server waits which is not told otherwise.
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
			c := s.send(t, u, s.v4, kind(i), arrived)
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
		uploads := count(24, 2000)
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

// filesOfAllSizes writes files to be uploaded: sizes at which something ends (nothing, a line, a packet, a pipe, a piece of what the
// server reads at once), and one of several pieces.
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

func TestCutConnectionsPublishNothing(t *testing.T) {
	t.Parallel()
	s := startServer(t, hangUpLate+defaults)
	for _, cut := range []struct {
		name string
		why  string
		do   func(w *wire)
	}{
		{"data connection reset", `was cut|hung up`, func(w *wire) { _, data := w.connections(); data.reset() }},
		{"control connection reset", `hung up`, func(w *wire) { control, _ := w.connections(); control.reset() }},
		{"control connection closed", `hung up`, func(w *wire) { control, _ := w.connections(); control.finish() }},
		{"both closed, data first", `hung up`, func(w *wire) { control, data := w.connections(); data.finish(); control.finish() }},
		{"both closed, control first", `hung up`, func(w *wire) { control, data := w.connections(); control.finish(); data.finish() }},
		{"both reset", `hung up|was cut`, func(w *wire) { control, data := w.connections(); data.reset(); control.reset() }},
	} {
		t.Run(cut.name, func(t *testing.T) {
			t.Parallel()
			eachSender(t, senders, func(t *testing.T, u uploader) {
				for i := range count(1, 20) {
					w := newWire(t, s.v4, 1+int64(i)*50_000, cut.do)
					c := s.launch(t, u, w.address(), kind(i+len(u.name)+len(cut.name)))
					c.lingers = c.lingers || u.name == "Net::FTP" // its put says ABOR and waits for one reply too many
					if n := c.discarded(cut.why); n > w.sent() {
						t.Errorf("%d bytes are logged, %d were sent", n, w.sent())
					}
					c.complains()
				}
			})
		})
	}
}

// sendAll has every client upload at once.
func (s *server) sendAll(t *testing.T) (all []*sending) {
	t.Helper()
	for i, u := range senders {
		if _, err := exec.LookPath(u.need); u.need == "" || err == nil {
			all = append(all, s.send(t, u, s.v4, kind(i), 10_000))
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
	c := s.send(t, senders[0], s.v4, "I", 0)
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
