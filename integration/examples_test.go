package integration

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
)

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

// exampleEnv returns the settings that all examples read.
func exampleEnv(address, user, secret string) []string {
	host, port := split(address)
	return []string{"FTP_HOST=" + host, "FTP_PORT=" + port, "FTP_USER=" + user, "FTP_PASSWORD=" + secret}
}

// exampleCommand prepares a program that works on this server, in a process group of its own.
func (s *server) exampleCommand(t testing.TB, line ...string) *exec.Cmd {
	t.Helper()
	cmd := command(t, line[0], line[1:]...)
	cmd.SysProcAttr = tied(true)
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Env = append(cmd.Env, exampleEnv(s.v4, account, password)...)
	return cmd
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

// TestExampleScripts executes the scripts in testdata/examples. They have the settings that all examples read, the directory $EXAMPLES, their own
// directory $TESTDATA, and $LOCK, which is /phone_lock for netlock.
func TestExampleScripts(t *testing.T) {
	t.Parallel()
	runScripts(t, scripts(t, "examples"), func(p *scene) {
		p.errorsExpected = true // a script may break the network or the server
		p.pin()
	})
}
