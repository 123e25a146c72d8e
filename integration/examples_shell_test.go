package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// highlander is the name of the lock of visitors.cgi.
const highlander = "/locks/highlander"

// visitors prepares a run of the page, as a web server does.
func (s *server) visitors(t testing.TB, env ...string) *exec.Cmd {
	t.Helper()
	cmd := s.exampleCommand(t, exampleFile(t, "shell-highlander/visitors.cgi"))
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

// Each page makes several short connections, so a lock of a dead page ends only by its age.
func TestShellHighlanderCountsRightWhenAHolderIsKilled(t *testing.T) {
	t.Parallel()
	harness.Need(t, "curl")
	s, clock := startStepped(t, "[files]\ndurable = false\n"+exampleRules(t, "shell-highlander"))
	log := newNotes(t)
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
	log.check(1 + len(others)*times)
	if got := s.read("visitors.txt"); got != fmt.Sprintln(len(others)*times) {
		t.Errorf("the counter is %q", got)
	}
	s.wantFree(t, highlander)
}

var retryAfter = regexp.MustCompile(`(?m)^Retry-After: (\d+)$`)

func TestShellHighlanderGivesUpAfterTenTries(t *testing.T) {
	t.Parallel()
	harness.Need(t, "curl")
	t.Run("for long", func(t *testing.T) {
		t.Parallel()
		if seconds := asksForLater(t, 0); seconds != 10 {
			t.Errorf("Retry-After: %d", seconds)
		}
	})
	t.Run("not for much longer", func(t *testing.T) {
		t.Parallel()
		for age := 18; ; age += 7 { // ten tries take ten seconds, on a busy machine more
			if seconds := asksForLater(t, age); seconds > 9 {
				t.Errorf("to come again in %d seconds", seconds)
			} else if seconds > 0 {
				return
			}
		}
	})
}

// asksForLater runs the page while its lock is held for age more seconds; 0: for long. It returns the seconds of Retry-After; 0: the page got the lock.
func asksForLater(t *testing.T, age int) (seconds int) {
	t.Helper()
	s := newServer(t, "")
	s.configure("[[lock]]\nmatch = \"/locks/*\"\n", "<mac&leod>")
	s.start()
	holder := s.session("<mac&leod>")
	holder.Want(200, fmt.Sprint("SITE LOCK AGE ", age))
	holder.Want(257, "MKD "+highlander)
	path, calls := watchedCurl(t)
	cmd := s.visitors(t, path)
	var errors strings.Builder
	cmd.Stderr = &errors
	r := finish(t, cmd)
	text := calls()
	if strings.Contains(text, password) {
		t.Error("the password is in a command line, which every user can read")
	}
	if age > 0 && r.status == 0 && strings.HasPrefix(r.out, "Status: 200 ") {
		return 0
	}
	if r.status != 0 || !strings.HasPrefix(r.out, "Status: 503 Service Unavailable\n") {
		t.Fatalf("exit status %d: %s", r.status, r.out)
	}
	if got := errors.String(); !strings.HasPrefix(got, "sorry ") || strings.Count(got, "\n") != 1 {
		t.Errorf("it logs %q", got)
	}
	if m := retryAfter.FindStringSubmatch(r.out); m != nil {
		seconds, _ = strconv.Atoi(m[1])
	}
	if want := fmt.Sprintf("<p>&lt;mac&amp;leod>@127.0.0.1 is at work here just now. Please try again in %d seconds.</p>", seconds); seconds < 1 || !strings.Contains(r.out, want) {
		t.Fatalf("no %q in\n%s", want, r.out)
	}
	if got := strings.Count(text, "--quote MKD "+highlander+" "); got != 10 {
		t.Errorf("tried %d times", got)
	}
	if s.exists("visitors.txt") {
		t.Error("counted without the lock")
	}
	return seconds
}

// watchedCurl returns a PATH with a curl that records its arguments, and a function that returns them.
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

func TestShellHighlanderGetsTheLockWhenItIsReleased(t *testing.T) {
	t.Parallel()
	harness.Need(t, "curl")
	s := startServer(t, "[[lock]]\nmatch = \"/locks/*\"\n")
	s.write("visitors.txt", "41\n")
	holder := s.session("other")
	holder.Want(257, "MKD "+highlander)
	p := launch(t, s.visitors(t))
	s.awaitQueue(t, highlander, 1)
	holder.Want(250, "RMD "+highlander)
	p.until("Content-Type")
	p.line() // the empty one that ends the header
	if got := p.until("<p>"); got != "<p>You are visitor number 42.</p>" {
		t.Error(got)
	}
	<-p.exited
	s.wantFree(t, highlander)
	holder.Want(257, "MKD "+highlander) // the queue is empty
}

// A slow page whose lock has expired must not release the lock of the next page. Neither of them has a connection then.
func TestASlowShellHighlanderDoesNotReleaseTheNextLock(t *testing.T) {
	t.Parallel()
	harness.Need(t, "curl")
	s, clock := startStepped(t, exampleRules(t, "shell-highlander"))
	log := newNotes(t)
	dir := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\nuntil [ -e %s/go ]; do /bin/sleep 0.02; done\n", dir)
	if err := os.WriteFile(filepath.Join(dir, "sleep"), []byte(script), 0o755); err != nil { // its work takes as long as the test wants
		t.Fatal(err)
	}
	cmd := s.visitors(t, "WORK=2", "PATH="+dir+":"+os.Getenv("PATH"))
	cmd.Stderr = log.open()
	p := launch(t, cmd)
	harness.Await(t, "it has the lock", func() bool { return len(log.lines()) > 0 })
	clock.pass(time.Minute)
	next := s.session(account)
	next.Want(200, "SITE LOCK AS another-page")
	next.Want(257, "MKD "+highlander)
	next.Conn.Close()
	writeFile(t, filepath.Join(dir, "go"), nil)
	p.until("Status: 500")
	<-p.exited
	lines := log.lines()
	if last := lines[len(lines)-1]; !strings.HasPrefix(last, "lost ") || !strings.Contains(last, "550 ") {
		t.Errorf("it logs %q", lines)
	}
	if s.exists("visitors.txt") {
		t.Error("counted without the lock")
	}
	s.session("boss").Want(211, "SITE LOCK INFO "+highlander, "held by "+account)
}
