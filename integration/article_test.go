package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// article returns the command line of one of the article's programs.
func (s *server) article(program string, args ...string) []string {
	host, port := split(s.v4)
	return append([]string{filepath.Join("testdata", "article", program), host, port, account, password}, args...)
}

func TestArticleUploaderAndDownloaderShareAFile(t *testing.T) {
	t.Parallel()
	harness.Need(t, "perl")
	s := startServer(t, defaults)
	s.write("data/phone.tsv", "old\n")
	list := filepath.Join(t.TempDir(), "phone.tsv")
	writeFile(t, list, []byte("anna\t1\nbob\t2\n"))
	var all sync.WaitGroup
	for i := range 3 {
		all.Go(func() {
			if r := run(t, "perl", s.article("uploader.pl", list, "0.02")...); r.status != 0 || r.out != "" {
				t.Errorf("uploader: %d %s", r.status, r.out)
			}
		})
		all.Go(func() {
			got := fmt.Sprintf("%s.%d", list, i)
			if r := run(t, "perl", s.article("downloader.pl", got, "0.02")...); r.status != 0 || r.out != "" {
				t.Errorf("downloader: %d %s", r.status, r.out)
			}
			if text, err := os.ReadFile(got); err != nil || string(text) != "old\n" && string(text) != "anna\t1\nbob\t2\n" {
				t.Errorf("downloaded %q, %v", text, err)
			}
		})
	}
	all.Wait()
	s.wantFile(t, "data/phone.tsv", "anna\t1\nbob\t2\n")
	if s.exists("data/phone_lock") || s.exists("data/phone.tmp") {
		t.Error("something is left over")
	}
}

func TestArticleLoopGivesUpWithAMessage(t *testing.T) {
	t.Parallel()
	harness.Need(t, "perl")
	s := startServer(t, defaults)
	s.write("data/phone.tsv", "x")
	other := s.session("other")
	other.Want(257, "MKD /data/phone_lock")
	r := run(t, "perl", s.article("patient.pl", "0.01")...)
	if r.status != 1 || !strings.HasPrefix(r.out, "Sorry") {
		t.Errorf("while it is held: %d %s", r.status, r.out)
	}
	other.Want(250, "RMD /data/phone_lock")
	if r = run(t, "perl", s.article("patient.pl", "0.01")...); r.status != 0 || r.out != "Got it after 0 refusals.\n" {
		t.Errorf("when it is free: %d %s", r.status, r.out)
	}
}

// holder starts the article's program that works under a lock of the locksmith, and returns the locksmith's
// process id when it has it.
func (s *server) holder(t testing.TB) (p *program, locksmith int) {
	t.Helper()
	p = launch(t, command(t, "perl", s.article("holder.pl", "/locks/job", "0.2")...))
	if _, err := fmt.Sscanf(p.line(), "working %d", &locksmith); err != nil {
		t.Fatal(err)
	}
	return p, locksmith
}

func TestLocksmithHoldsWhileItsParentLives(t *testing.T) {
	t.Parallel()
	harness.Need(t, "perl")
	s := startServer(t, hour)
	p, _ := s.holder(t)
	other := s.session("other")
	other.Want(550, "MKD /locks/job", "held by "+account)
	p.to.Close()
	p.says(t, "released")
	other.Want(257, "MKD /locks/job")
}

func TestLocksmithsLockIsGoneWhenAProcessIsKilled(t *testing.T) {
	t.Parallel()
	harness.Need(t, "perl")
	for _, tc := range []struct {
		name, tables string
		kill         func(p *program, locksmith int)
	}{
		{"its parent, who gave it its input", hour, func(p *program, _ int) { p.kill() }},
		{"itself, and the rule says so", released, func(_ *program, locksmith int) { killProcess(t, locksmith) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, tc.tables)
			tc.kill(s.holder(t))
			other := s.session("other")
			harness.Await(t, "the lock comes free", func() bool { return other.wantEither("MKD /locks/job").Code == 257 })
		})
	}
}

// killProcess kills a process that a program of this test started.
func killProcess(t testing.TB, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}
