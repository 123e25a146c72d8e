package integration

import (
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// get requests a path of the page, and returns the status and the body.
func (s *server) get(path string) (status int, body string) {
	s.t.Helper()
	client := http.Client{Timeout: patience}
	defer client.CloseIdleConnections()
	answer, err := client.Get(s.page + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// banner starts a server, and returns its banner and the command of curl in it. The end of the test stops the server.
func banner(t *testing.T, cmd *exec.Cmd, log *harness.LogBuffer) (text, curl string) {
	t.Helper()
	out := harness.NewLogBuffer()
	cmd.Stdout, cmd.Stderr = out, log
	p := started(t, cmd)
	out.Await(t, "| grep demo\n", 1)
	t.Cleanup(func() {
		p.signal(t, syscall.SIGTERM)
		if status := p.exit(t); status != 0 {
			t.Errorf("exit status %d\n%s", status, log)
		}
	})
	return out.String(), regexp.MustCompile(`(?m)^  (curl .*)$`).FindStringSubmatch(out.String())[1]
}

func TestTheFirstStartShowsNoPasswordAndItsLinesWork(t *testing.T) {
	t.Parallel()
	harness.Need(t, "curl")
	for _, given := range []string{"", "hush hush"} {
		dir := t.TempDir()
		state, log := filepath.Join(dir, "state"), harness.NewLogBuffer()
		cmd := command(t, binary, "--listen", "127.0.0.1:0", "--root", filepath.Join(dir, "files"), "--state", state)
		if given != "" {
			cmd.Env = append(cmd.Env, "FTPLOCKD_PASSWORD="+given)
			if taken, err := net.Listen("tcp", "127.0.0.1:2180"); err == nil { // else somebody else has it
				defer taken.Close()
			}
		}
		text, curl := banner(t, cmd, log)
		kept, _ := os.ReadFile(filepath.Join(state, "password")) // not there if one was given
		secret := strings.TrimSpace(string(kept))
		if given != "" {
			secret = given
		}
		if secret == "" || strings.Contains(text, secret) || strings.Contains(log.String(), secret) {
			t.Errorf("password %q in\n%s", secret, text)
		}
		if given == "" && !strings.Contains(text, "password in "+filepath.Join(state, "password")) {
			t.Errorf("the file of the password is not named:\n%s", text)
		}
		// All servers have the same default port for the page: another one may have it.
		page := strings.Contains(text, "; its page is at http://127.0.0.1:2180/\n")
		if warned := strings.Contains(log.String(), "there is no page: its address is in use"); page == warned || page && given != "" {
			t.Errorf("a page: %v; a warning that there is none: %v", page, warned)
		}
		var said []string
		for _, line := range []string{curl, curl, strings.Replace(curl, "MKD", "RMD", 1)} {
			shell := command(t, "sh", "-c", line)
			if given != "" {
				shell.Env = append(shell.Env, "FTPLOCKD_PASSWORD="+given)
			}
			said = append(said, finish(t, shell).out)
		}
		if !strings.Contains(said[0], "< 257 \"/locks/demo\" locked, token 1, ") || !strings.Contains(said[1], "< 550 /locks/demo: held by ") || !strings.Contains(said[2], "< 250 /locks/demo") {
			t.Errorf("the lines of\n%s\nsay %q", text, said)
		}
	}
}

func TestTheBannerHasTheAddressOfThePage(t *testing.T) {
	t.Parallel()
	harness.Need(t, "curl")
	s := startServer(t, tlsTables(t, t.TempDir())+"[http]\nlisten = \":0\"\n"+defaults)
	if r := run(t, "curl", "-sSk", s.page+"healthz"); r.out != "ok\n" || !strings.HasPrefix(s.page, "https://127.0.0.1:") {
		t.Errorf("%s is no page: %s", s.page, r.out)
	}
}
