package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// reload has the server read its configuration again and returns what the command said.
func (s *server) reload() result {
	s.t.Helper()
	return run(s.t, binary, "reload", "--state", s.state)
}

// mustReload reloads. There may be warnings.
func (s *server) mustReload() {
	s.t.Helper()
	if r := s.reload(); r.status != 0 || !strings.HasSuffix(r.out, "reloaded\n") {
		s.t.Fatalf("reload: exit status %d: %s", r.status, r.out)
	}
}

const agedHour = "[[lock]]\nmatch = \"/locks/**\"\nmax_age = \"1h\"\nmax_idle = \"0\"\n"

func TestReloadBySignalTakesNewAccountsAndKeepsSessionsAndLocks(t *testing.T) {
	t.Parallel()
	s := startServer(t, agedHour)
	c := s.session(account)
	c.Want(257, "MKD /locks/a")
	if _, err := login(s.v4, "newcomer"); err == nil {
		t.Fatal("an account that there is not")
	}
	s.configure(agedHour, "newcomer")
	s.signal(syscall.SIGHUP)
	s.log.Await(t, "msg=reloaded", 1)
	s.session("newcomer").Want(550, "MKD /locks/a", "held by "+account)
	c.Want(250, "RMD /locks/a")
}

func TestReloadOfAFileWithAnErrorChangesNothing(t *testing.T) {
	t.Parallel()
	s := startServer(t, agedHour)
	s.errorsExpected = true
	c := s.session(account)
	c.Want(257, "MKD /locks/a")
	s.configure("[[lock]]\nmatch = \"/locks/**\"\nmax_age = \"1s\"\nmax_agee = \"2s\"\n", "newcomer")
	r := s.reload()
	if r.status != 1 || !regexp.MustCompile(`ftplockd\.toml:\d+: .*max_agee`).MatchString(r.out) {
		t.Errorf("exit status %d: %s", r.status, r.out)
	}
	s.signal(syscall.SIGHUP)
	s.log.Await(t, "reload refused, nothing has changed", 2)
	if !strings.Contains(s.log.String(), "ftplockd.toml:") {
		t.Errorf("the log does not say where:\n%s", s.log)
	}
	c.wantAges("/locks/a", 0, time.Hour)
	if _, err := login(s.v4, "newcomer"); err == nil {
		t.Error("half of the file was taken over")
	}
}

func TestRenewedCertificateIsUsedWithoutARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startServer(t, tlsTables(t, dir)+defaults)
	shown := func() string {
		return string(s.stranger().startTLS().PeerCertificates[0].Raw)
	}
	first := shown()
	tlsTables(t, dir) // another one
	s.mustReload()
	second := shown()
	if second == first {
		t.Error("after a reload it is the same")
	}
	if err := os.Remove(dir + "/key.pem"); err != nil {
		t.Fatal(err)
	}
	s.errorsExpected = true
	if r := s.reload(); r.status != 1 {
		t.Errorf("reload without a key: exit status %d: %s", r.status, r.out)
	}
	if shown() != second {
		t.Error("after a refused reload it is another one")
	}
}

// A hook runs once at a time, in the order of the events, and a reload ends no run and drops no event.
func TestReloadKeepsHooksThatRunAndTheirEvents(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	hook := func(timeout string) string {
		return fmt.Sprintf("[[hook]]\non = ['acquire']\ntimeout = %q\nrun = ['/bin/sh', '-c', 'mkdir \"$0/alone\" || echo overlap >>\"$0/out\"; cat >>\"$0/out\"; until [ -e \"$0/free\" ]; do sleep 0.02; done; rmdir \"$0/alone\"', %q]\n", timeout, dir)
	}
	s := startServer(t, hook("50s")+defaults)
	c := s.session(account)
	for round := range 3 {
		c.Want(257, fmt.Sprintf("MKD /locks/a%d", round))
		c.Want(257, fmt.Sprintf("MKD /locks/b%d", round))
		if round == 0 {
			harness.Await(t, "the hook runs", func() bool { _, err := os.Stat(file("out")); return err == nil })
		}
		s.configure(hook(fmt.Sprintf("%ds", 60+round)) + defaults)
		s.signal(syscall.SIGHUP)
		s.log.Await(t, "msg=reloaded", round+1)
	}
	writeFile(t, file("free"), nil)
	var out string
	harness.Await(t, "six runs", func() bool {
		text, err := os.ReadFile(file("out"))
		out = string(text)
		return err == nil && strings.Count(out, "\n") >= 6
	})
	var locks []string
	for _, m := range regexp.MustCompile(`"lock":"/locks/(\w+)"`).FindAllStringSubmatch(out, -1) {
		locks = append(locks, m[1])
	}
	if got := strings.Join(locks, " "); got != "a0 b0 a1 b1 a2 b2" || strings.Contains(out, "overlap") {
		t.Errorf("runs for %s:\n%s", got, out)
	}
	s.stop()
}
