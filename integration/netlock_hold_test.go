package integration

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// lockURL names a lock of this server for netlock.
func (s *server) lockURL(lock string) string {
	return s.urlOf(account, password, strings.Replace(lock, "/", "%2F", 1))
}

// locker prepares netlock. The argument "URL" stands for a lock.
func locker(t testing.TB, url string, args ...string) *exec.Cmd {
	t.Helper()
	args = slices.Clone(args)
	for i := range args {
		if args[i] == "URL" {
			args[i] = url
		}
	}
	return caller(t, netlock, url, args...)
}

// caller prepares a program that finds netlock, and the lock in the variable URL.
func caller(t testing.TB, name, url string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := command(t, name, args...)
	cmd.Env = append(cmd.Env, "URL="+url, "PATH="+filepath.Dir(netlock)+":"+os.Getenv("PATH"))
	return cmd
}

// wantFree has a session take and give back a lock that is to be free within the time.
func (s *session) wantFree(name string, within time.Duration) {
	s.T.Helper()
	for end := time.Now().Add(within); ; time.Sleep(5 * time.Millisecond) {
		if s.wantEither("MKD "+name).Code == 257 {
			s.Want(250, "RMD "+name)
			return
		}
		if time.Now().After(end) {
			s.T.Fatalf("%s is not free after %v", name, within)
		}
	}
}

// longLived has an age longer than a test, so that no lock comes free by its age.
const longLived = "[[lock]]\nmatch = \"**/*_lock\"\nmax_age = \"1h\"\n"

// The article's caller, as it stands there.
const articleCaller = `$| = 1;
open LOCKER, "netlock $ENV{URL} |" or die "Cannot fork: $!";
$line = <LOCKER>;
print $line;
die $line unless $line =~ /^OK/;
<STDIN>;
close LOCKER;
print "closed $?\n";
<STDIN>;
`

func TestNetlockServesTheArticlesCaller(t *testing.T) {
	t.Parallel()
	harness.Need(t, "perl")
	s := startServer(t, longLived)
	perl := caller(t, "perl", s.lockURL("phone_lock"), "-e", articleCaller)
	other := s.session("other")
	promptly(t, "closing", 1500*time.Millisecond, func() time.Duration { // the dots would notice after two seconds only
		p := launch(t, perl2(t, perl))
		p.says(t, "OK")
		other.Want(550, "MKD /phone_lock", "held by "+account)
		closing := time.Now()
		fmt.Fprintln(p.to)
		p.says(t, "closed 0")
		took := time.Since(closing)
		other.wantFree("/phone_lock", 0)
		p.to.Close()
		p.exit(t)
		return took
	})
	other.Want(257, "MKD /phone_lock")

	// The next one waits for its turn.
	p := launch(t, perl2(t, perl))
	other.awaitWaiting("/phone_lock", 1)
	other.Want(250, "RMD /phone_lock")
	p.says(t, "OK")
}

// perl2 is the same command once more: one can be started only once.
func perl2(t testing.TB, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	again := command(t, cmd.Path, cmd.Args[1:]...)
	again.Env = cmd.Env
	return again
}

// awaitWaiting returns when so many wait for a lock.
func (s *session) awaitWaiting(name string, n int) {
	s.T.Helper()
	harness.Await(s.T, "somebody waits for "+name, func() bool {
		r, err := s.Try("SITE LOCK INFO " + name)
		return err == nil && strings.Contains(r.Text, fmt.Sprint(n, " in the queue"))
	})
}

// awaitHolder returns when an account holds a lock.
func (s *session) awaitHolder(name, account string) {
	s.T.Helper()
	harness.Await(s.T, account+" holds "+name, func() bool {
		r, err := s.Try("SITE LOCK INFO " + name)
		return err == nil && strings.Contains(r.Text, ";account="+account+";")
	})
}

// hold starts "netlock URL" and returns when it has the lock.
func (s *server) hold(t testing.TB, lock string, args ...string) *program {
	t.Helper()
	p := launch(t, locker(t, s.lockURL(lock), append(args, "URL")...))
	p.says(t, "OK")
	return p
}

func TestNetlockReleasesWhenItsParentIsKilled(t *testing.T) {
	t.Parallel()
	harness.Need(t, "perl")
	s := startServer(t, longLived)
	for _, to := range []string{"|", ">$ENV{OUT}"} { // a pipe, and a file, which does not report the end of its reader
		out := filepath.Join(t.TempDir(), "out")
		script := articleCaller
		if to != "|" {
			script = `$| = 1; unless (fork) { open STDOUT, ">$ENV{OUT}"; exec "netlock", $ENV{URL} } print "OK\n"; <STDIN>;`
		}
		cmd := caller(t, "perl", s.lockURL("phone_lock"), "-e", script)
		cmd.Env = append(cmd.Env, "OUT="+out)
		p := launch(t, cmd)
		p.line()
		other := s.session("other")
		other.awaitHolder("/phone_lock", account)
		p.kill()
		other.wantFree("/phone_lock", patience)
	}
}

func TestNetlockReleasesWhenItsOutputIsClosed(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := locker(t, s.lockURL("phone_lock"), "URL")
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	lines := bufio.NewReader(r)
	if line, err := lines.ReadString('\n'); line != "OK\n" {
		t.Errorf("it says %q, %v", line, err)
	}
	if dot, err := lines.ReadByte(); dot != '.' {
		t.Errorf("then %q, %v", dot, err)
	}
	r.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	s.session("other").Want(257, "MKD /phone_lock")
}

// heeded are the signals that a program which the tests start heeds: under nohup it would ignore SIGHUP.
func heeded(all ...syscall.Signal) []syscall.Signal {
	return slices.DeleteFunc(all, func(s syscall.Signal) bool { return signal.Ignored(s) })
}

func TestNetlockReleasesOnSignals(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	other := s.session("other")
	for _, signal := range heeded(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP) {
		p := s.hold(t, "phone_lock")
		p.signal(t, signal)
		p.ended(t, 0)
		other.Want(257, "MKD /phone_lock")

		p = launch(t, locker(t, s.lockURL("phone_lock"), "URL"))
		other.awaitWaiting("/phone_lock", 1)
		p.signal(t, signal)
		p.ended(t, 128+int(signal))
		if line := p.line(); !strings.Contains(line, "interrupted") {
			t.Errorf("%v while it waits: %q", signal, line)
		}
		other.Want(250, "RMD /phone_lock")
		other.wantFree("/phone_lock", 0)
	}
}

func TestNetlockLeavesSignalsIgnoredThatWereSo(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	cmd := caller(t, "sh", s.lockURL("phone_lock"), "-c", "trap '' HUP INT; exec netlock $URL")
	p := launch(t, cmd)
	p.says(t, "OK")
	for _, signal := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT} {
		p.signal(t, signal)
	}
	if dot, err := p.from.ReadByte(); dot != '.' {
		t.Errorf("then %q, %v", dot, err)
	}
	s.session("other").Want(550, "MKD /phone_lock")
	p.signal(t, syscall.SIGTERM)
	p.ended(t, 0)
}

func TestNetlockReportsTheLossOfItsLock(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	p := s.hold(t, "phone_lock")
	s.session("boss").Breaks("/phone_lock")
	p.ended(t, 79)
	p.line() // the dots
	if line := p.line(); !strings.Contains(line, "lost") {
		t.Errorf("it says %q", line)
	}
}

func TestNetlockWritesErrorsToItsOutput(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	s.session("other").Want(257, "MKD /phone_lock")
	for name, args := range map[string][]string{"--try": {"--try"}, "--timeout": {"--timeout", "2s"}} {
		p := launch(t, locker(t, s.lockURL("phone_lock"), append(args, "URL")...))
		if line := p.line(); !strings.Contains(line, "held by other@") {
			t.Errorf("%s: it says %q", name, line)
		}
		if rest := p.line(); rest != "" {
			t.Errorf("%s: and then %q", name, rest)
		}
		p.ended(t, 75)
	}
}
