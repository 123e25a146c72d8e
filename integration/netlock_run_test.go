package integration

import (
	"os"
	"strings"
	"testing"
	"time"
)

// running starts "netlock run $URL" around a shell script, and returns the script's first line. The output ends with the last process of the
// script.
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
		t.Fatalf("no line, but the error %q", said.String())
	}
	return p, line
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

// brokenWithin breaks the lock of a script, and returns the time until all its processes are dead.
func (s *server) brokenWithin(t testing.TB, name, script string) time.Duration {
	t.Helper()
	p, _ := s.running(t, "phone_lock", nil, script)
	mustRun(t, binary, "break", "/phone_lock", "--reason", "test", "--config", s.config)
	broken := time.Now()
	p.ends(t, name)
	took := time.Since(broken)
	p.ended(t, 79)
	if said := p.cmd.Stderr.(*strings.Builder).String(); strings.Count(said, "\n") != 1 || !strings.Contains(said, "lost") {
		t.Errorf("%s: it wrote %q", name, said)
	}
	return took
}

func TestNetlockRunKillsInTimeWithoutAReaderOfItsErrors(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	for name, closed := range map[string]bool{"the pipe is closed": true, "the pipe is full": false} {
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

// pin writes the current ports into the configuration, for the next start.
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

func TestNetlockRunDetectsALockBrokenWhileTheServerWasAway(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	p, _ := s.running(t, "phone_lock", nil, "echo here; exec sleep 100")
	v4, v6 := s.v4, s.v6
	s.kill()
	s.start() // on another port
	s.session("boss").Breaks("/phone_lock")
	s.kill()
	s.v4, s.v6 = v4, v6
	s.pin()
	s.start()
	p.ends(t, "the command")
	p.ended(t, 79)
}
