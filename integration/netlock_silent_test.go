package integration

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// freeze stops a server and leaves its connections open, like a network that loses everything. thaw continues it, at the end of the test at the latest.
func (s *server) freeze() (thaw func()) {
	s.t.Helper()
	process := s.cmd.Process
	s.signal(syscall.SIGSTOP)
	thaw = func() { _ = process.Signal(syscall.SIGCONT) }
	s.t.Cleanup(thaw)
	return thaw
}

// fill fills a pipe.
func fill(t testing.TB, w *os.File) {
	t.Helper()
	raw, err := w.SyscallConn()
	if err == nil {
		err = raw.Write(func(fd uintptr) bool {
			for {
				if _, err := syscall.Write(int(fd), make([]byte, 4096)); err != nil {
					return true
				}
			}
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	w.Fd() // sets it to blocking mode for the program
}

func TestNetlockRefusesToHoldALockForAnOrphan(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	for name, c := range map[string]struct{ args, says string }{
		"a file": {"$URL > out", "give netlock a command"},
		"a pipe": {"$URL | (read line; echo $line > out)", "OK"},
	} {
		dir := t.TempDir()
		// The orphan waits until its parent has ended.
		orphan := `while kill -0 "$PARENT" 2>/dev/null; do sleep 0.02; done; cut -d" " -f4 /proc/$$/stat > parent; netlock ` + c.args + ``
		if strings.HasPrefix(c.args, "$URL >") {
			orphan = strings.Replace(orphan, "; netlock", "; exec netlock", 1)
		}
		cmd := caller(t, "sh", s.lockURL("phone_lock"), "-c", `PARENT=$$ /bin/sh -c '`+orphan+`' >/dev/null 2>&1 & exit`)
		cmd.Dir = dir
		if r := finish(t, cmd); r.status != 0 {
			t.Fatal(r)
		}
		parent := func() string { return readSoon(t, filepath.Join(dir, "parent")) }
		harness.Await(t, "it is an orphan", func() bool { return parent() != "" })
		if parent() != "1\n" && name == "a file" {
			t.Logf("orphans have the parent %s here", parent())
			continue
		}
		harness.Await(t, name, func() bool { return strings.Contains(readSoon(t, filepath.Join(dir, "out")), c.says) })
	}
	s.session("other").wantFree("/phone_lock", patience)
}

// readSoon returns the contents of a file, or "" if it does not exist yet.
func readSoon(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(text)
}

func TestNetlockHoldsTheLockForAParentThatDoesNotRead(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	fill(t, w)
	cmd := locker(t, s.lockURL("phone_lock"), "URL")
	cmd.Stdout = w
	p := started(t, cmd)
	w.Close()
	other := s.session("other")
	other.awaitHolder("/phone_lock", account)
	s.session("boss").Breaks("/phone_lock")
	p.ended(t, 79)
	other.wantFree("/phone_lock", 0)
}
