package integration

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
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
	all := blocks(t, "examples/"+example+"/README.md")
	i := slices.IndexFunc(all, func(b block) bool { return b.kind == "toml" })
	if i < 0 {
		t.Fatalf("%s/README.md recommends no rules", example)
	}
	return all[i].text
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

// killHolder starts a worker, which is to die while it has the lock, then runs the others and kills it
// when so many of them wait. It returns when all others have ended.
func (n *notes) killHolder(s *server, lockName string, victim *exec.Cmd, queue int, afterwards func(), others ...func()) {
	n.t.Helper()
	p := started(n.t, victim)
	harness.Await(n.t, "the first one has the lock", func() bool { return len(n.lines()) > 0 })
	var all sync.WaitGroup
	defer all.Wait()
	for _, other := range others {
		all.Go(other)
	}
	s.awaitQueue(n.t, lockName, queue)
	if got := n.lines(); len(got) != 1 || got[0] != fmt.Sprint("begin ", victim.Process.Pid) {
		n.t.Errorf("while %d has the lock: %q", victim.Process.Pid, got)
	}
	n.kill(p)
	afterwards()
}

// awaitQueue returns when at least so many wait for a lock.
func (s *server) awaitQueue(t testing.TB, lockName string, n int) {
	t.Helper()
	c := s.session("boss")
	defer c.Conn.Close()
	harness.Await(t, fmt.Sprintf("%d wait for %s", n, lockName), func() bool {
		r, err := c.Try("SITE LOCK INFO " + lockName)
		if err != nil {
			t.Fatal(err)
		}
		var waiting int
		for line := range strings.Lines(r.Text) {
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
	defer c.Conn.Close()
	for _, name := range names {
		c.Want(550, "SITE LOCK INFO "+name, "not held")
	}
}

// worker returns a run of a worker that must succeed and whose output goes into the log.
func (n *notes) worker(cmd *exec.Cmd) func() {
	n.t.Helper()
	cmd.Stdout = n.open()
	return func() {
		if r := finish(n.t, cmd); r.status != 0 || r.out != "" {
			n.t.Errorf("%v: exit status %d: %s", cmd.Args, r.status, r.out)
		}
	}
}

// countsRight has an example's program, which takes how often to count and how long that takes, count while one of eight is killed.
func countsRight(t *testing.T, example, lockName string, program ...string) {
	t.Helper()
	s := startServer(t, "[files]\ndurable = false\n"+exampleRules(t, example))
	log := newNotes(t)
	times := count(3, 50)
	victim := s.exampleCommand(t, append(slices.Clone(program), "1", "60")...)
	victim.Stdout = log.open()
	var others []func()
	for range 7 {
		others = append(others, log.worker(s.exampleCommand(t, append(slices.Clone(program), fmt.Sprint(times), "0.01")...)))
	}
	log.killHolder(s, lockName, victim, len(others), func() {}, others...)
	log.check(1 + len(others)*times)
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
