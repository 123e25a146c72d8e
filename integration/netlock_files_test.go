package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
)

func TestNetlockTransfersUnderTheLock(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	url := s.lockURL("phone_lock")
	dir := t.TempDir()
	local := filepath.Join(dir, "phone.tsv")
	text := strings.Repeat("anna\t1\n", 50000)
	writeFile(t, local, []byte(text))
	if r := finish(t, locker(t, url, "put", "URL", local, "data.tsv")); r.status != 0 || r.out != "" {
		t.Errorf("put: %+v", r)
	}
	s.wantFile(t, "data.tsv", text)
	piped := locker(t, url, "put", "URL", "-", "piped.tsv")
	piped.Stdin = strings.NewReader("piped\n")
	if r := finish(t, piped); r.status != 0 || s.read("piped.tsv") != "piped\n" {
		t.Errorf("put from a pipe: %+v, %q", r, s.read("piped.tsv"))
	}
	back := filepath.Join(dir, "back.tsv")
	if r := finish(t, locker(t, url, "get", "URL", "data.tsv", back)); r.status != 0 || r.out != "" {
		t.Errorf("get: %+v", r)
	}
	wantFile(t, back, text)
	if r := finish(t, locker(t, url, "get", "URL", "piped.tsv", "-")); r.status != 0 || r.out != "piped\n" {
		t.Errorf("get to a pipe: %+v", r)
	}
	r := finish(t, locker(t, url, "get", "URL", "none.tsv", back))
	if r.status != 74 || strings.Count(r.out, "\n") != 1 || !strings.Contains(r.out, "none.tsv") {
		t.Errorf("a file that is not there: %+v", r)
	}
	s.session("other").Want(257, "MKD /phone_lock")
	if r := finish(t, locker(t, url, "get", "--try", "URL", "data.tsv", back)); r.status != 75 {
		t.Errorf("while it is held: %+v", r)
	}
}

func TestNetlockTransferThatIsCutOffChangesNothing(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"get", "put"} {
		s := startServer(t, longLived)
		s.errorsExpected = true
		address, _ := startCutter(t, s.v4, 300000, nil)
		dir := t.TempDir()
		local, sent := filepath.Join(dir, "phone.tsv"), strings.Repeat("x", 1<<20)
		args := []string{"get", lockAt(address), "phone.tsv", local}
		if command == "get" {
			s.write("phone.tsv", sent)
			writeFile(t, local, []byte("old"))
		} else {
			s.write("phone.tsv", "old")
			writeFile(t, local, []byte(sent))
			args = []string{"put", lockAt(address), local, "phone.tsv"}
		}
		if r := finish(t, locker(t, "", args...)); r.status != 74 || strings.Count(r.out, "\n") != 1 {
			t.Errorf("%s: %+v", command, r)
		}
		if command == "get" {
			wantFile(t, local, "old")
		} else {
			s.wantFile(t, "phone.tsv", "old")
		}
		if all, err := os.ReadDir(dir); err != nil || len(all) != 1 {
			t.Errorf("%s: left over: %v, %v", command, all, err)
		}
		s.session("other").wantFree("/phone_lock", 0)
	}
}

func TestNetlockGetWhoseLockIsLostReplacesNothing(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	s.write("phone.tsv", strings.Repeat("x", 1<<20))
	hold := make(chan struct{})
	address, reached := startCutter(t, s.v4, 300000, hold)
	local := filepath.Join(t.TempDir(), "phone.tsv")
	writeFile(t, local, []byte("old"))
	p := launch(t, locker(t, "", "get", lockAt(address), "phone.tsv", local))
	<-reached // some of it has come
	s.session("boss").Breaks("/phone_lock")
	close(hold)
	p.ended(t, 79)
	wantFile(t, local, "old")
	if all, err := os.ReadDir(filepath.Dir(local)); err != nil || len(all) != 1 {
		t.Errorf("beside the file there are %v, %v", all, err)
	}
}

func TestNetlockThatIsInterruptedInATransferChangesNothing(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	s.write("phone.tsv", "old")
	cmd := locker(t, s.lockURL("phone_lock"), "put", "URL", "-", "phone.tsv")
	p := launch(t, cmd)
	fmt.Fprintln(p.to, "half of it")
	harness.Await(t, "the upload begins", func() bool { return len(s.unfinished()) == 1 })
	p.signal(t, syscall.SIGTERM)
	p.ended(t, 128+15)
	s.session("other").wantFree("/phone_lock", 0)
	s.wantFile(t, "phone.tsv", "old")
}
