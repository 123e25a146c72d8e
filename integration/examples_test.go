package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// exampleEnv tells every example where the server is.
func (s *server) exampleEnv() []string {
	host, port := split(s.v4)
	return []string{"FTP_HOST=" + host, "FTP_PORT=" + port, "FTP_USER=" + account, "FTP_PASSWORD=" + password}
}

// exampleFile is a file of examples/.
func exampleFile(t testing.TB, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "examples", name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// exampleRules are the lock rules that an example's README recommends.
func exampleRules(t testing.TB, example string) string {
	t.Helper()
	text, err := os.ReadFile(exampleFile(t, example+"/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rules, found := strings.Cut(string(text), "```toml\n")
	rules, _, closed := strings.Cut(rules, "```\n")
	if !found || !closed {
		t.Fatalf("%s/README.md recommends no rules", example)
	}
	return rules
}

// exampleCommand prepares a program that works on this server, in a process group of its own.
func (s *server) exampleCommand(t testing.TB, line ...string) *exec.Cmd {
	t.Helper()
	cmd := command(t, line[0], line[1:]...)
	cmd.SysProcAttr = tied(true)
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Env = append(cmd.Env, s.exampleEnv()...)
	return cmd
}

// holdsLog is a file to which workers append "begin PID" when they have a lock and "end PID NUMBER" when they have counted
// and are about to give it back: see turns.
type holdsLog struct {
	t    testing.TB
	path string
}

func newHoldsLog(t testing.TB) *holdsLog {
	t.Helper()
	l := &holdsLog{t, filepath.Join(t.TempDir(), "log")}
	l.open().Close()
	return l
}

// open opens it for one worker; what workers write at the same time does not mix.
func (l *holdsLog) open() *os.File {
	l.t.Helper()
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { f.Close() })
	return f
}

func (l *holdsLog) lines() []string {
	l.t.Helper()
	text, err := os.ReadFile(l.path)
	if err != nil {
		l.t.Fatal(err)
	}
	return slices.DeleteFunc(strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' }),
		func(line string) bool { return strings.HasPrefix(line, "sorry ") }) // it went without the lock
}

// check reads all of it: one that was killed has had the lock, and so many that have counted.
func (l *holdsLog) check(ends int) {
	l.t.Helper()
	notes := strings.Join(l.lines(), "\n")
	if times, wrong := turns(notes); len(wrong) > 0 || times != 1+ends {
		l.t.Errorf("the lock was had %d times, want %d; wrong: %q\n%s", times, 1+ends, wrong, notes)
	}
}

// killHolder starts a worker, which is to die while it has the lock, then runs the others and kills it
// when so many of them wait. It returns when all others have ended, which must be soon.
func (l *holdsLog) killHolder(s *server, lockName string, victim *exec.Cmd, queue int, afterwards func(), others ...func()) {
	l.t.Helper()
	if err := victim.Start(); err != nil {
		l.t.Fatal(err)
	}
	reaped := make(chan struct{})
	go func() {
		defer close(reaped)
		_ = victim.Wait()
	}()
	end := func() {
		_ = syscall.Kill(-victim.Process.Pid, syscall.SIGKILL)
		<-reaped
	}
	defer end()
	await(l.t, "the first one has the lock", func() bool { return len(l.lines()) > 0 })
	dead := fmt.Sprint(victim.Process.Pid)
	var all sync.WaitGroup
	defer all.Wait()
	for _, other := range others {
		all.Go(other)
	}
	s.awaitQueue(l.t, lockName, queue)
	if got := l.lines(); len(got) != 1 || got[0] != "begin "+dead {
		l.t.Errorf("while %s has the lock: %q", dead, got)
	}
	fmt.Fprintln(l.open(), "end", dead) // it does nothing any more, so its time may end here
	end()
	afterwards()
	killed := time.Now()
	all.Wait()
	if took := time.Since(killed); took > 40*time.Second {
		l.t.Errorf("the others have ended %v after the holder was killed", took)
	}
}

// awaitQueue returns when at least so many wait for a lock.
func (s *server) awaitQueue(t testing.TB, lockName string, n int) {
	t.Helper()
	c := s.session("boss")
	defer c.conn.Close()
	await(t, fmt.Sprintf("%d wait for %s", n, lockName), func() bool {
		r, err := c.try("SITE LOCK INFO " + lockName)
		if err != nil {
			t.Fatal(err)
		}
		var waiting int
		for line := range strings.Lines(r.text) {
			if _, err := fmt.Sscanf(line, " %d in the queue", &waiting); err == nil {
				break
			}
		}
		return waiting >= n
	})
}

// wantFree checks that nobody holds a lock.
func (s *server) wantFree(t testing.TB, names ...string) {
	t.Helper()
	c := s.session("boss")
	defer c.conn.Close()
	for _, name := range names {
		c.want(550, "SITE LOCK INFO "+name, "not held")
	}
}

// worker returns a run of a worker that must succeed and whose output goes into the log.
func (l *holdsLog) worker(cmd *exec.Cmd) func() {
	l.t.Helper()
	cmd.Stdout = l.open()
	return func() {
		if r := finish(l.t, cmd); r.status != 0 || r.out != "" {
			l.t.Errorf("%v: exit status %d: %s", cmd.Args, r.status, r.out)
		}
	}
}

// countsRight has an example's program, which takes how often to count and how long that takes, count while one of eight is killed.
func countsRight(t *testing.T, example, lockName string, program ...string) {
	t.Helper()
	s := startServer(t, "[files]\ndurable = false\n"+exampleRules(t, example))
	log := newHoldsLog(t)
	times := count(3, 50)
	victim := s.exampleCommand(t, append(slices.Clone(program), "1", "60")...)
	victim.Stdout = log.open()
	var others []func()
	for range 7 {
		others = append(others, log.worker(s.exampleCommand(t, append(slices.Clone(program), fmt.Sprint(times), "0.01")...)))
	}
	log.killHolder(s, lockName, victim, len(others), func() {}, others...)
	log.check(len(others) * times)
	if got := s.read("counter.txt"); got != fmt.Sprintln(len(others)*times) {
		t.Errorf("the counter is %q", got)
	}
	s.wantFree(t, lockName)
}

// What the page of examples says is shown by a part of a test is shown there. TestDocsNameTestsThatExist looks up the tests.
func TestTheExamplesPageNamesPartsThatExist(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("examples_*test.go")
	if err != nil {
		t.Fatal(err)
	}
	source := document(t, "integration/testdata/examples/locker.t")
	for _, file := range files {
		source += document(t, "integration/"+file)
	}
	quoted := regexp.MustCompile(`"([^"|`+"`"+`\n]*[a-z] [^"|`+"`"+`\n]*[^.\n])"`).FindAllStringSubmatch(document(t, "docs/examples.md"), -1)
	for _, m := range quoted {
		if m[1] != "Resource Locking Over Networks" && !strings.Contains(source, m[1]) {
			t.Errorf("there is no part %q of a test", m[1])
		}
	}
	if len(quoted) < 20 {
		t.Errorf("only %d parts were looked for", len(quoted))
	}
}
