package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// running starts "netlock run $URL" around a shell script, and returns when that has said a line. Its standard output ends when all
// that it has started have ended.
func (s *server) running(t testing.TB, lock string, flags []string, script string) (*program, string) {
	t.Helper()
	args := append(append([]string{"run"}, flags...), "URL", "--", "sh", "-c", script)
	cmd := locker(t, s.lockURL(lock), args...)
	var said strings.Builder
	cmd.Stderr = &said
	p := launch(t, cmd)
	line := p.line()
	if line == "" {
		p.exit(t)
		t.Fatalf("it says nothing but %q", said.String())
	}
	return p, line
}

func TestNetlockRunPassesTheStatusOn(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	url := s.lockURL("phone_lock")
	for script, want := range map[string]int{
		"exit 0": 0, "exit 7": 7, "kill -9 $$": 128 + 9, "kill -TERM $$": 128 + 15, "exit 75": 75,
	} {
		if r := finish(t, locker(t, url, "run", "URL", "--", "sh", "-c", script)); r.status != want || r.out != "" {
			t.Errorf("%s: %+v, want status %d", script, r, want)
		}
		s.session("other").wantFree("/phone_lock", 0)
	}
}

func TestNetlockRunPassesSignalsOn(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	for _, signal := range heeded(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP) {
		p, _ := s.running(t, "phone_lock", nil, "sleep 100 & echo here; wait")
		p.signal(t, signal)
		// A shell's background job ignores SIGINT, so it is left.
		if signal != syscall.SIGINT {
			p.ends(t, signal.String())
		}
		p.ended(t, 128+int(signal))
		s.session("other").wantFree("/phone_lock", 0)
	}
	other := s.session("other") // a netlock that waits ends, too, and leaves the queue
	other.Want(257, "MKD /phone_lock")
	p := launch(t, locker(t, s.lockURL("phone_lock"), "run", "URL", "--", "echo", "it ran"))
	other.awaitWaiting("/phone_lock", 1)
	p.signal(t, syscall.SIGTERM)
	p.ended(t, 128+int(syscall.SIGTERM))
	other.Want(250, "RMD /phone_lock")
	other.wantFree("/phone_lock", 0)
}

func TestNetlockRunEndsTheCommandWithinTwoSecondsWhenTheLockIsBroken(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	for name, script := range map[string]string{
		"a command":                           "echo here; exec sleep 100",
		"with grandchildren":                  "(sleep 100 & sleep 100) & echo here; wait",
		"that ignores SIGTERM":                "trap '' TERM; (sleep 100; sleep 100) & echo here; sleep 100; sleep 100",
		"that ends without them":              "trap 'exit 0' TERM; (trap '' TERM; echo here; sleep 100; sleep 100) & wait",
		"that is stopped":                     "echo here; kill -STOP $$",
		"that is stopped and ignores SIGTERM": "trap '' TERM; echo here; kill -STOP $$",
	} {
		promptly(t, name, 2*time.Second, func() time.Duration { return s.brokenWithin(t, name, script) })
	}
}

func TestNetlockRunLeavesTheCommandTimeToEndWhenTheLockIsBroken(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	for _, stops := range []string{"", "kill -STOP $$; "} {
		script := "trap 'echo tidy; exit 0' TERM; echo here; " + stops + "while :; do sleep 0.05; done"
		p, _ := s.running(t, "phone_lock", []string{"--kill-after", "1m"}, script)
		s.session("boss").Breaks("/phone_lock")
		p.says(t, "tidy")
		p.ended(t, 79)
	}
}

// brokenWithin has an administrator break the lock of a script that runs under it, and returns how long after that all of it is dead.
func (s *server) brokenWithin(t testing.TB, name, script string) time.Duration {
	t.Helper()
	p, _ := s.running(t, "phone_lock", nil, script)
	mustRun(t, binary, "break", "/phone_lock", "--reason", "test", "--config", s.config)
	broken := time.Now()
	p.ends(t, name)
	took := time.Since(broken)
	p.ended(t, 79)
	if said := p.cmd.Stderr.(*strings.Builder).String(); strings.Count(said, "\n") != 1 || !strings.Contains(said, "lost") {
		t.Errorf("%s: it says %q", name, said)
	}
	return took
}

// Its errors may find no reader, or no room.
func TestNetlockRunKillsInTimeWhereverItsErrorsGo(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	for name, closed := range map[string]bool{"nobody reads them": true, "the pipe is full": false} {
		unread, errors, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer unread.Close()
		if closed {
			unread.Close()
		} else {
			fill(t, errors)
		}
		cmd := locker(t, s.lockURL("phone_lock"), "run", "URL", "--", "sh", "-c", "trap '' TERM; (sleep 100; sleep 100) & echo here; sleep 100; sleep 100")
		cmd.Stderr = errors
		p := launch(t, cmd)
		errors.Close()
		p.says(t, "here")
		s.session("boss").Breaks("/phone_lock")
		p.ends(t, name)
		p.ended(t, 79)
	}
}

// pin has a server listen again on the ports that it has now.
func (s *server) pin() {
	s.t.Helper()
	text, err := os.ReadFile(s.config)
	if err != nil {
		s.t.Fatal(err)
	}
	pinned := strings.NewReplacer("127.0.0.1:0", s.v4, "[::1]:0", s.v6).Replace(string(text))
	if err := os.WriteFile(s.config, []byte(pinned), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func TestNetlockRunGoesOnWhenTheServerIsKilledAndComesBack(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	p, _ := s.running(t, "phone_lock", nil, "echo here; read line; echo got $line")
	s.pin()
	s.kill()
	s.start()
	other := s.session("other")
	other.Want(550, "MKD /phone_lock", "held by "+account)
	// It has found its way back when it speaks for the hold again.
	harness.Await(t, "netlock is there again", func() bool {
		r, err := s.session("boss").Try("SITE LOCK INFO /phone_lock")
		return err == nil && strings.Contains(r.Text, account) && strings.Count(mustRun(t, binary, "sessions", "--config", s.config), account) > 0
	})
	fmt.Fprintln(p.to, "it")
	p.says(t, "got it")
	p.ended(t, 0)
	other.wantFree("/phone_lock", 0)
}

func TestNetlockRunLearnsOfALockThatWasBrokenWhileItsServerWasAway(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	p, _ := s.running(t, "phone_lock", nil, "echo here; exec sleep 100")
	v4, v6 := s.v4, s.v6
	s.kill()
	s.start() // where netlock does not find it
	s.session("boss").Breaks("/phone_lock")
	s.kill()
	s.v4, s.v6 = v4, v6
	s.pin()
	s.start()
	p.ends(t, "the command")
	p.ended(t, 79)
}

func TestNetlockRunSharesALockWithOtherReaders(t *testing.T) {
	t.Parallel()
	s := newServer(t, "[[lock]]\nmatch = \"**/*_lock\"\nshared = [\"other\"]\n")
	s.start()
	writer, readers := s.lockURL("phone_lock"), s.urlOf("other", password, "phone_lock")
	reader := launch(t, locker(t, readers, "run", "--shared", "URL", "--", "sh", "-c", "echo here; read x"))
	reader.says(t, "here")
	if r := finish(t, locker(t, readers, "-s", "-n", "URL", "true")); r.status != 0 {
		t.Errorf("a second reader: %+v", r)
	}
	if r := finish(t, locker(t, writer, "-n", "URL", "true")); r.status != 75 || !strings.Contains(r.out, "held by other@") {
		t.Errorf("a writer: %+v", r)
	}
	reader.to.Close()
	reader.exit(t)
	// An account that cannot share is refused, and its lock is released.
	if r := finish(t, locker(t, writer, "run", "--shared", "URL", "--", "true")); r.status != 73 {
		t.Errorf("an account that holds it alone: %+v", r)
	}
	s.session("other").wantFree("/phone_lock", 0)
}

func TestNetlockRunRenewsALock(t *testing.T) {
	t.Parallel()
	s := startServer(t, "[[lock]]\nmatch = \"**/*_lock\"\nmax_age = \"4s\"\n")
	p, _ := s.running(t, "phone_lock", []string{"--renew"}, "echo here; sleep 6; echo still here")
	p.says(t, "still here")
	p.ended(t, 0)
}

func TestNetlockRunReleasesTheLockOfACommandThatCannotBeStarted(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/none/such\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if r := finish(t, locker(t, s.lockURL("phone_lock"), "run", "URL", script)); r.status != 127 || strings.Count(r.out, "\n") != 1 {
		t.Errorf("%+v", r)
	}
	s.session("other").wantFree("/phone_lock", 0)
}
