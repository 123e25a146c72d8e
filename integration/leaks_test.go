package integration

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// wantNothingLeft waits until the sessions, locks and uploads of a load have ended, and compares the descriptors and goroutines of the server
// with those of one that was hardly used. It ends the server.
func (s *server) wantNothingLeft(t testing.TB) {
	t.Helper()
	if runtime.GOOS != "linux" {
		return // there is no /proc
	}
	harness.Await(t, "all sessions end", func() bool { return len(s.sessions(account))+len(s.sessions("other")) == 0 })
	harness.Await(t, "all locks end", func() bool { return len(s.locks()) == 0 })
	harness.Await(t, "all uploads end", func() bool { return len(s.unfinished()) == 0 })
	fresh := startServer(t, defaults)
	for _, one := range []*server{fresh, s} {
		one.dumps = true
		c := one.session(account)
		c.Want(257, "MKD /once")
		c.Want(250, "RMD /once")
		c.stores("/once", "once")
		c.Want(221, "QUIT")
		c.Conn.Close()
		harness.Await(t, "the session ends", func() bool { return len(one.sessions(account)) == 0 })
	}
	// The journal opens files, and goroutines end, at moments of their own. What hundreds of sessions leak is more than these.
	const moment = 4
	few := len(fresh.descriptors(t)) + moment
	harness.Await(t, fmt.Sprintf("at most %d descriptors are open", few), func() bool { return len(s.descriptors(t)) <= few })
	before, after := fresh.goroutines(t), s.goroutines(t)
	if len(before) == 0 || len(after) > len(before)+moment {
		t.Errorf("%d goroutines run, want %d:\n%s", len(after), len(before), strings.Join(after, "\n\n"))
	}
}

// descriptors returns what the server has open, without what Go's runtime and library keep for later use.
func (s *server) descriptors(t testing.TB) (open []string) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd/", s.cmd.Process.Pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	ends := make(map[string]int)
	for _, e := range entries {
		to, _ := os.Readlink(dir + e.Name())
		open = append(open, to)
		ends[to]++
	}
	return slices.DeleteFunc(open, func(to string) bool {
		return strings.HasPrefix(to, "pipe:") && ends[to] == 2 // pipes of splice
	})
}

// goroutines ends the server and returns the stacks of its goroutines without those of Go's runtime.
func (s *server) goroutines(t testing.TB) (stacks []string) {
	t.Helper()
	before := len(s.log.String())
	s.signal(syscall.SIGQUIT)
	s.waitExit()
	for part := range strings.SplitSeq(s.log.String()[before:], "\n\n") {
		if strings.HasPrefix(part, "goroutine ") && !strings.HasPrefix(part, "goroutine 0 ") && !strings.Contains(part, "\ncreated by runtime.") {
			stacks = append(stacks, part)
		}
	}
	return stacks
}
