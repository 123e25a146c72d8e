package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// highlander is the name of the lock of visitors.cgi.
const highlander = "/locks/highlander"

// visitors prepares a run of the page as a web server does it.
func (s *server) visitors(t testing.TB, env ...string) *exec.Cmd {
	t.Helper()
	cmd := s.exampleCommand(t, exampleFile(t, "shell-highlander/visitors.cgi"))
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

// Each page makes several connections, all of which end at once, so that only the age of its lock tells that it is dead.
func TestShellHighlanderCountsRightWhenAHolderIsKilled(t *testing.T) {
	t.Parallel()
	need(t, "curl")
	s, clock := startStepped(t, "[files]\ndurable = false\n"+exampleRules(t, "shell-highlander"))
	log := newHoldsLog(t)
	times := count(3, 50)
	victim := s.visitors(t, "WORK=60")
	victim.Stderr = log.open()
	var others []func()
	for range 7 {
		errors := log.open()
		others = append(others, func() {
			for done, sorry := 0, 0; done < times; {
				cmd := s.visitors(t, "WORK=0.01")
				cmd.Stderr = errors
				switch r := finish(t, cmd); {
				case r.status == 0 && strings.HasPrefix(r.out, "Status: 200 OK\n"):
					done++
				case sorry < 5 && strings.HasPrefix(r.out, "Status: 503 ") && strings.Contains(r.out, "@127.0.0.1 is at work"):
					sorry++ // on a very busy machine
				default:
					t.Errorf("exit status %d: %s", r.status, r.out)
					return
				}
			}
		})
	}
	log.killHolder(s, highlander, victim, len(others), func() { clock.pass(time.Minute) }, others...)
	log.check(len(others) * times)
	if got := s.read("visitors.txt"); got != fmt.Sprintln(len(others)*times) {
		t.Errorf("the counter is %q", got)
	}
	s.wantFree(t, highlander)
}

var retryAfter = regexp.MustCompile(`(?m)^Retry-After: (\d+)$`)

func TestShellHighlanderAsksTenTimesAndThenPolitelyToComeAgain(t *testing.T) {
	t.Parallel()
	need(t, "curl")
	for _, tc := range []struct {
		name    string
		age     int // of the lock that is held; 0: long
		longest int // what the page may ask for, in seconds
	}{
		{"for long", 0, 10},
		{"not for much longer", 8, 9}, // and renewed all the time: ten tries take ten seconds or more
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, "")
			s.configure("[[lock]]\nmatch = \"/locks/*\"\n", "<mac&leod>")
			s.start()
			holder := s.session("<mac&leod>")
			holder.want(200, fmt.Sprint("SITE LOCK AGE ", tc.age))
			holder.want(257, "MKD "+highlander)
			path, calls := watchedCurl(t)
			cmd := s.visitors(t, path)
			var errors strings.Builder
			cmd.Stderr = &errors
			renewed := renewing(holder, highlander)
			r := finish(t, cmd)
			renewed()
			if r.status != 0 || !strings.HasPrefix(r.out, "Status: 503 Service Unavailable\n") {
				t.Errorf("exit status %d: %s", r.status, r.out)
			}
			if got := errors.String(); !strings.HasPrefix(got, "sorry ") || strings.Count(got, "\n") != 1 {
				t.Errorf("it logs %q", got)
			}
			seconds := 0
			if m := retryAfter.FindStringSubmatch(r.out); m != nil {
				seconds, _ = strconv.Atoi(m[1])
			}
			if seconds < 1 || seconds > tc.longest || tc.age == 0 && seconds != tc.longest {
				t.Errorf("to come again in %d seconds", seconds)
			}
			if want := fmt.Sprintf("<p>&lt;mac&amp;leod>@127.0.0.1 is at work here just now. Please try again in %d seconds.</p>", seconds); !strings.Contains(r.out, want) {
				t.Errorf("no %q in\n%s", want, r.out)
			}
			text := calls()
			if got := strings.Count(text, "--quote MKD "+highlander+" "); got != 10 {
				t.Errorf("tried %d times", got)
			}
			if strings.Contains(text, password) {
				t.Error("the password is in a command line, where everybody can read it")
			}
			if s.exists("visitors.txt") {
				t.Error("counted without the lock")
			}
			holder.want(250, "RMD "+highlander)
		})
	}
}

// renewing has a holder renew its lock until stop is called.
func renewing(holder *session, name string) (stop func()) {
	over, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-over:
				return
			case <-time.After(100 * time.Millisecond):
				_, _ = holder.try("SITE LOCK RENEW " + name) // what has become of the lock, the RMD shows
			}
		}
	}()
	return func() { close(over); <-stopped }
}

// watchedCurl is a PATH with a curl that takes down its arguments, and what was taken down.
func watchedCurl(t testing.TB) (path string, calls func() string) {
	t.Helper()
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	log := filepath.Join(dir, "calls")
	script := fmt.Sprintf("#!/bin/sh\nprintf '%%s ' \"$@\" >>%s\necho >>%s\nexec %s \"$@\"\n", log, log, curl)
	if err := os.WriteFile(filepath.Join(dir, "curl"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return "PATH=" + dir + ":" + os.Getenv("PATH"), func() string {
		text, err := os.ReadFile(log)
		if err != nil {
			t.Error(err)
		}
		return string(text)
	}
}

func TestShellHighlanderIsInAsSoonAsTheLockIsFree(t *testing.T) {
	t.Parallel()
	need(t, "curl")
	s := startServer(t, "[[lock]]\nmatch = \"/locks/*\"\n")
	s.write("visitors.txt", "41\n")
	holder := s.session("other")
	holder.want(257, "MKD "+highlander)
	p := launch(t, s.visitors(t))
	s.awaitQueue(t, highlander, 1)
	holder.want(250, "RMD "+highlander)
	p.until("Content-Type")
	p.line() // the empty one that ends the header
	if got := p.until("<p>"); got != "<p>You are visitor number 42.</p>" {
		t.Error(got)
	}
	<-p.exited
	s.wantFree(t, highlander)
	holder.want(257, "MKD "+highlander) // nobody is queued before it any more
}

func TestShellHighlanderThatIsStoppedByTheWebServerGivesTheLockBack(t *testing.T) {
	t.Parallel()
	need(t, "curl")
	s := startServer(t, "[[lock]]\nmatch = \"/locks/*\"\n")
	log := newHoldsLog(t)
	cmd := s.visitors(t, "WORK=60")
	cmd.Stderr = log.open()
	p := launch(t, cmd)
	await(t, "it has the lock", func() bool { return len(log.lines()) > 0 })
	if err := syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-p.exited
	s.wantFree(t, highlander)
	if s.exists("visitors.txt") {
		t.Error("counted, though it was stopped before")
	}
}

// A page that was too slow must not give back the lock that another has by then, which is connected as little as itself.
func TestShellHighlanderThatWasTooSlowLeavesTheNextOnesLock(t *testing.T) {
	t.Parallel()
	need(t, "curl")
	s, clock := startStepped(t, exampleRules(t, "shell-highlander"))
	log := newHoldsLog(t)
	dir := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\nuntil [ -e %s/go ]; do /bin/sleep 0.02; done\n", dir)
	if err := os.WriteFile(filepath.Join(dir, "sleep"), []byte(script), 0o755); err != nil { // its work takes as long as the test wants
		t.Fatal(err)
	}
	cmd := s.visitors(t, "WORK=2", "PATH="+dir+":"+os.Getenv("PATH"))
	cmd.Stderr = log.open()
	p := launch(t, cmd)
	await(t, "it has the lock", func() bool { return len(log.lines()) > 0 })
	clock.pass(time.Minute)
	next := s.session(account)
	next.want(200, "SITE LOCK AS another-page")
	next.want(257, "MKD "+highlander)
	next.conn.Close()
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.until("Status: 500")
	<-p.exited
	lines := log.lines()
	if last := lines[len(lines)-1]; !strings.HasPrefix(last, "lost ") || !strings.Contains(last, "550 ") {
		t.Errorf("it logs %q", lines)
	}
	if s.exists("visitors.txt") {
		t.Error("counted without the lock")
	}
	s.session("boss").want(211, "SITE LOCK INFO "+highlander, "held by "+account)
}

func TestShellHighlanderSaysSoWhenTheServerRefusesIt(t *testing.T) {
	t.Parallel()
	need(t, "curl")
	s := startServer(t, "[[lock]]\nmatch = \"/locks/*\"\n")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "sleep"), []byte("#!/bin/sh\n"), 0o755); err != nil { // it need not take ten seconds
		t.Fatal(err)
	}
	cmd := s.visitors(t, "FTP_PASSWORD=wrong", "PATH="+dir+":"+os.Getenv("PATH"))
	r := finish(t, cmd)
	if r.status != 1 || !strings.Contains(r.out, "Status: 500 ") || !strings.Contains(r.out, "Access denied: 530") {
		t.Errorf("exit status %d: %s", r.status, r.out)
	}
}
