package integration

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// TestProcess1ReapsWhatHooksLeave runs the server as process 1, as in a container, with hooks that leave processes in the background. A signal still
// stops the server in order, and its exit status is that of the container.
func TestProcess1ReapsWhatHooksLeave(t *testing.T) {
	t.Parallel()
	harness.Need(t, "unshare", "pgrep")
	ran := t.TempDir() + "/ran"
	s := newServer(t, defaults+"[[hook]]\non = ['acquire']\nrun = ['/bin/sh', '-c', '(sleep 0.1 &); echo >>"+ran+"']\n")
	s.through = []string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc"}
	if os.Getuid() != 0 {
		s.through = append(s.through, "--user", "--map-root-user")
	}
	if r := run(t, s.through[0], append(s.through[1:], "true")...); r.status != 0 {
		harness.Missing(t, "a PID namespace: "+r.out)
	}
	s.start()
	first, err := strconv.Atoi(strings.TrimSpace(mustRun(t, "pgrep", "-P", strconv.Itoa(s.cmd.Process.Pid))))
	if err != nil {
		t.Fatal(err)
	}
	c := s.session(account)
	for _, name := range []string{"a", "b", "c"} {
		c.Want(257, "MKD /locks/"+name)
	}
	harness.Await(t, "the hooks have run", func() bool { text, _ := os.ReadFile(ran); return len(text) == 3 })
	harness.Await(t, "their processes are reaped", func() bool { return run(t, "pgrep", "-P", strconv.Itoa(first), "-x", "sleep").status == 1 })
	if err := syscall.Kill(first, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s.stopped()
}
