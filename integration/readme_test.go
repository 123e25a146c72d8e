package integration

import (
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// shown is a command of the README and its output there.
type shown struct {
	command string
	output  string
}

// firstScreen returns the commands of the README before its first heading of the second level, in order: lines after "$ " in blocks marked console, and
// all lines in blocks marked sh.
func firstScreen(t *testing.T) (all []shown) {
	t.Helper()
	for _, b := range blocks(t, "README.md") {
		for line := range strings.Lines(b.text) {
			command, prompted := strings.CutPrefix(line, "$ ")
			switch {
			case b.heading != "":
			case b.kind == "sh" || b.kind == "console" && prompted:
				all = append(all, shown{command: strings.TrimSpace(command)})
			case b.kind == "console" && len(all) > 0:
				all[len(all)-1].output += line
			}
		}
	}
	return all
}

// sameEverywhere replaces the parts of a text that differ between runs.
func sameEverywhere(text string) string {
	for _, r := range []struct{ what, by string }{
		// The README shows the output on a terminal. Other outputs name the file of the password.
		{`ftp:(?:[A-Z2-7]{26}|"\$\(cat '[^']*'\)")`, "ftp:PASSWORD"},
		{`password (?:in \S*/ftplockd-data/state/password|[A-Z2-7]{26})`, "password PASSWORD"},
		{`; its page is at http://127\.0\.0\.1:2180/`, ""}, // there is none while another server has that address
		{`127\.0\.0\.1:\d+`, "ADDRESS"},
		{`serves /\S*/ftplockd-data/files`, "DIRECTORY"},
		{`token \d+`, "token N"},
		{`(for|in) (\d+[hms])+`, "$1 AGE"},
	} {
		text = regexp.MustCompile(r.what).ReplaceAllString(text, r.by)
	}
	return strings.TrimSpace(text)
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

// TestReadmeFirstScreenIsTrue runs the server of the first command in a fresh directory, on a free port, and the command of curl that it prints:
// twice, and then with RMD.
func TestReadmeFirstScreenIsTrue(t *testing.T) {
	t.Parallel()
	harness.Need(t, "curl", "grep")
	screen := firstScreen(t)
	if len(screen) != 4 || screen[0].command != "go run ./cmd/ftplockd" {
		t.Fatalf("the README shows %d commands, want the server and three of curl: %q", len(screen), screen)
	}
	cmd := command(t, binary, "--listen", "127.0.0.1:0")
	cmd.Dir = t.TempDir()
	log := harness.NewLogBuffer()
	text, line := banner(t, cmd, log)
	secret := strings.TrimSpace(readSoon(t, filepath.Join(cmd.Dir, "ftplockd-data/state/password")))
	if secret == "" || strings.Contains(text, secret) || strings.Contains(log.String(), secret) {
		t.Errorf("the password %q is in\n%s", secret, text)
	}
	if got, want := sameEverywhere(text), sameEverywhere(screen[0].output); got != want {
		t.Errorf("the server prints\n%s\nthe README shows\n%s", got, want)
	}
	for i, command := range []string{line, line, strings.Replace(line, "MKD", "RMD", 1)} {
		example := screen[i+1]
		if sameEverywhere(command) != sameEverywhere(example.command) {
			t.Errorf("the line of the server is %q, the README has %q", command, example.command)
		}
		r := run(t, "sh", "-c", command)
		if got, want := sameEverywhere(strings.ReplaceAll(r.out, "\r", "")), sameEverywhere(example.output); got != want {
			t.Errorf("%s prints\n%s\nthe README shows\n%s", example.command, got, want)
		}
	}
}

// TestTheFirstStartWithAGivenPassword: the line of the server works, no output has the password, and there is no page if its address is in use.
func TestTheFirstStartWithAGivenPassword(t *testing.T) {
	t.Parallel()
	harness.Need(t, "curl")
	const secret = "hush hush"
	if taken, err := net.Listen("tcp", "127.0.0.1:2180"); err == nil { // else another process has it
		defer taken.Close()
	}
	cmd, log := command(t, binary, "--listen", "127.0.0.1:0"), harness.NewLogBuffer()
	cmd.Dir = t.TempDir()
	cmd.Env = append(cmd.Env, "FTPLOCKD_PASSWORD="+secret)
	text, line := banner(t, cmd, log)
	if strings.Contains(text+log.String(), secret) || strings.Contains(text, "its page is at") || !strings.Contains(log.String(), "there is no page: its address is in use") {
		t.Errorf("%s\n%s", text, log)
	}
	shell := command(t, "sh", "-c", line)
	shell.Env = append(shell.Env, "FTPLOCKD_PASSWORD="+secret)
	if r := finish(t, shell); !strings.Contains(r.out, "< 257 \"/locks/demo\" locked, token 1, ") {
		t.Errorf("%s prints %s", line, r.out)
	}
}

// TestReadmeConfigurationKeepsTheLockOfTheFirstScreen: the README's configuration has rules of its own, and causes no warning.
func TestReadmeConfigurationKeepsTheLockOfTheFirstScreen(t *testing.T) {
	t.Parallel()
	all := blocks(t, "README.md")
	i := slices.IndexFunc(all, func(b block) bool { return b.kind == "toml" })
	_, rules, _ := strings.Cut(all[i].text, "[[lock]]")
	s := startServer(t, "[[lock]]"+rules)
	if r := run(t, binary, "config", "check", s.config); r.status != 0 || strings.Contains(r.out, "warning") {
		t.Errorf("config check: status %d\n%s", r.status, r.out)
	}
	if log := s.log.String(); strings.Contains(log, "level=WARN") {
		t.Error(log)
	}
	c := s.session("boss")
	c.Want(257, "MKD /locks/demo", `"/locks/demo" locked, token `)
	c.Want(257, "MKD /phone_lock", `"/phone_lock" locked, token `)
	c.Want(257, "MKD /composer.lock", `"/composer.lock" created`)
}

// TestReadmeNetlockPassesTheStatusOn runs the README's netlock with a command that fails. Under "go run" its status would be 1.
func TestReadmeNetlockPassesTheStatusOn(t *testing.T) {
	t.Parallel()
	s := startServer(t, "")
	all := blocks(t, "README.md")
	i := slices.IndexFunc(all, func(b block) bool { return b.heading == "netlock" && b.kind == "sh" })
	text := all[i].text
	for _, r := range []struct{ shown, run string }{
		{"go build ./cmd/netlock", "ln -s " + netlock + " netlock"}, {"=ZJ6ACNQK3SHYMFQ4VDO2RXB7WE", "=" + password}, {"ftp@127.0.0.1:2121", account + "@" + s.v4},
		{"is mine'", "is mine; exit 7'"},
	} {
		if !strings.Contains(text, r.shown) {
			t.Fatalf("the block lacks %q:\n%s", r.shown, text)
		}
		text = strings.ReplaceAll(text, r.shown, r.run)
	}
	cmd := command(t, "sh", "-c", text)
	cmd.Dir = t.TempDir()
	if r := finish(t, cmd); r.status != 7 || r.out != "/locks/demo is mine\n" {
		t.Errorf("exit status %d\n%s", r.status, r.out)
	}
}
