package integration

import (
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// TestInitPrintsCommandsThatWork executes "ftplockd init", and then the three commands that it prints.
func TestInitPrintsCommandsThatWork(t *testing.T) {
	t.Parallel()
	harness.Need(t, "curl", "grep")
	dir := t.TempDir()
	write := command(t, binary, "init", "it's.toml", "--account", "phone", "--listen", "127.0.0.1:0")
	write.Dir = dir
	r := finish(t, write)
	commands := regexp.MustCompile(`(?m)^  (.*)$`).FindAllStringSubmatch(r.out, -1)
	if r.status != 0 || len(commands) != 3 {
		t.Fatalf("exit status %d\n%s", r.status, r.out)
	}
	server := command(t, "sh", "-c", "exec "+commands[0][1])
	server.Dir = "/"
	server.Env = append(server.Env, "PATH="+filepath.Dir(binary)+":/usr/bin:/bin")
	out := harness.NewLogBuffer()
	server.Stdout, server.Stderr = out, out
	p := started(t, server)
	t.Cleanup(func() { p.signal(t, syscall.SIGTERM); p.exit(t) })
	out.Await(t, "serves ", 1)
	address := regexp.MustCompile(`ftplockd listens on (\S+)`).FindStringSubmatch(out.String())
	if r := run(t, "sh", "-c", strings.Replace(commands[1][1], "127.0.0.1:0", address[1], 1)); !strings.Contains(r.out, `257 "/phone_lock" locked, token 1,`) {
		t.Errorf("%s\n%s", commands[1][1], r.out)
	}
	if r := run(t, "sh", "-c", "PATH="+filepath.Dir(binary)+":$PATH; "+commands[2][1]); !regexp.MustCompile(`(?m)^/phone_lock +phone `).MatchString(r.out) {
		t.Errorf("%s\n%s", commands[2][1], r.out)
	}
}
