package integration

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// shown is a command that the README shows, and what the README says it prints.
type shown struct {
	command string
	output  string
}

// firstScreen returns the commands of the README ahead of its first heading of the second level, in the
// order in which they stand there: lines after "$ " in blocks marked console, all lines in blocks marked sh.
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

// sameEverywhere replaces what differs from run to run.
func sameEverywhere(text string) string {
	for _, r := range []struct{ what, by string }{
		// The README shows what a terminal does; what is no terminal is told the file that has the password.
		{`ftp:(?:[A-Z2-7]{26}|"\$\(cat '[^']*'\)")`, "ftp:PASSWORD"},
		{`password (?:in \S*/ftplockd-data/state/password|[A-Z2-7]{26})`, "password PASSWORD"},
		{`its page is at http://127\.0\.0\.1:2180/\n`, ""}, // there is none while another server has that address
		{`127\.0\.0\.1:\d+`, "ADDRESS"},
		{`serves /\S*/ftplockd-data/files; its own files are in /\S*/ftplockd-data/state`, "DIRECTORIES"},
		{`token \d+`, "token N"},
		{`(for|in) (\d+[hms])+`, "$1 AGE"},
	} {
		text = regexp.MustCompile(r.what).ReplaceAllString(text, r.by)
	}
	return strings.TrimSpace(text)
}

func TestReadmeFirstScreenIsTrue(t *testing.T) {
	t.Parallel()
	harness.Need(t, "curl", "grep")
	if err := sources(); err != nil {
		t.Fatal(err)
	}
	screen := firstScreen(t)
	if len(screen) != 4 {
		t.Fatalf("the README shows %d commands, want the server and three of curl: %q", len(screen), screen)
	}
	banner, commands := runReadmeServer(t, screen[0].command)
	if got, want := sameEverywhere(banner), sameEverywhere(screen[0].output); got != want {
		t.Errorf("%s prints\n%s\nthe README shows\n%s", screen[0].command, got, want)
	}
	for i, command := range commands {
		example := screen[i+1]
		if sameEverywhere(command) != sameEverywhere(example.command) {
			t.Errorf("the server says %q, the README %q", command, example.command)
		}
		r := run(t, "sh", "-c", command)
		if got, want := sameEverywhere(strings.ReplaceAll(r.out, "\r", "")), sameEverywhere(example.output); got != want {
			t.Errorf("%s prints\n%s\nthe README shows\n%s", example.command, got, want)
		}
	}
}

// runReadmeServer runs the README's first command, but in a fresh directory and on a free port, and returns what it
// prints and the commands in that. It is stopped at the end of the test.
func runReadmeServer(t *testing.T, line string) (banner string, commands []string) {
	t.Helper()
	dir := t.TempDir()
	wrapper := filepath.Join(dir, "elsewhere")
	pidFile := filepath.Join(dir, "pid")
	script := fmt.Sprintf("#!/bin/sh\nprogram=$1; shift\ncd '%s' && echo $$ > pid && exec \"$program\" \"$@\" --listen 127.0.0.1:0\n", dir)
	if err := os.WriteFile(wrapper, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", "exec "+line)
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "GOFLAGS=-exec="+wrapper, "FTPLOCKD_USER=", "FTPLOCKD_PASSWORD=")
	cmd.SysProcAttr = tied(true)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	watchdog := time.AfterFunc(3*time.Minute, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	t.Cleanup(func() {
		text, err := os.ReadFile(pidFile)
		pid, aerr := strconv.Atoi(strings.TrimSpace(string(text)))
		if err := errors.Join(err, aerr); err != nil {
			t.Error(err)
			pid = -cmd.Process.Pid // the group
		}
		_ = syscall.Kill(pid, syscall.SIGINT) // go run ends as the server does
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		watchdog.Stop()
	})
	for r := bufio.NewReader(stdout); len(commands) < 3; {
		text, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("%v after %q", err, banner)
		}
		banner += text
		if command := strings.TrimSpace(text); strings.HasPrefix(command, "curl ") {
			commands = append(commands, command)
		}
	}
	return banner, commands
}

// The README's configuration has rules of its own, and its first screen takes the lock /locks/demo. The file's check, the start and
// the 257 name each default rule that it replaces.
func TestReadmeConfigurationKeepsTheLockOfTheFirstScreen(t *testing.T) {
	t.Parallel()
	all := blocks(t, "README.md")
	i := slices.IndexFunc(all, func(b block) bool { return b.kind == "toml" })
	_, rules, _ := strings.Cut(all[i].text, "[[lock]]")
	s := startServer(t, "[[lock]]"+rules)
	const lost = `"**/*.lock" or "**/.*-lock"`
	for what, text := range map[string]string{"config check": run(t, binary, "config", "check", s.config).out, "the start": strings.ReplaceAll(s.log.String(), `\"`, `"`)} {
		if !strings.Contains(text, "only "+lost) {
			t.Errorf("%s does not name %s: %s", what, lost, text)
		}
	}
	c := s.session("boss")
	c.Want(257, "MKD /locks/demo", `"/locks/demo" locked, token `)
	c.Want(257, "MKD /phone_lock", `"/phone_lock" locked, token `)
	c.Want(257, "MKD /composer.lock", "not a lock: the configuration replaces the default rule **/*.lock")
}
