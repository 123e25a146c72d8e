package integration

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestNetlockAsTheTestsOfFlock repeats the tests of util-linux (tests/ts/misc/flock) with netlock: a command shares the lock, and each case tries to
// get it. That command runs for three seconds there, and until the end of the cases here.
func TestNetlockAsTheTestsOfFlock(t *testing.T) {
	t.Parallel()
	s := startServer(t, "[[lock]]\nmatch = \"**/*_lock\"\nshared = [\"other\"]\n")
	writer, reader := s.lockURL("phone_lock"), s.urlOf("other", password, "phone_lock")
	general := launch(t, locker(t, reader, "--shared", "URL", "sh", "-c", "echo Locking; read x; echo Unlocking"))
	general.says(t, "Locking")
	for name, c := range map[string]struct {
		url     string
		options string
		status  int
		says    string
	}{
		"non-block":         {writer, "--nonblock --conflict-exit-code 123", 123, ""},
		"wait zero":         {writer, "--wait 0 --conflict-exit-code 123", 123, ""},
		"no-fork":           {writer, "--no-fork --nonblock --conflict-exit-code 123", 64, ""}, // it does not exist
		"shared":            {reader, "--shared", 0, "you see this\n"},
		"exclusive":         {writer, "--nonblock --exclusive --conflict-exit-code 123", 123, ""},
		"timeout":           {writer, "--timeout 0.5 --conflict-exit-code 5", 5, ""},
		"wait is timeout":   {writer, "--wait 0.5 --conflict-exit-code 5", 5, ""},
		"close":             {reader, "-s -o", 0, "you see this\n"},
		"short options":     {writer, "-xnE123", 123, ""},
		"a wrong timeout":   {writer, "--timeout soon", 64, ""},
		"a wrong exit code": {writer, "-E many", 64, ""},
		"no command":        {writer, "-n -c", 64, ""},
	} {
		cmd := locker(t, c.url, append(strings.Fields(c.options), "URL", "echo", "you see this")...)
		var out strings.Builder
		cmd.Stdout = &out
		_ = cmd.Run()
		if got := cmd.ProcessState.ExitCode(); got != c.status || out.String() != c.says {
			t.Errorf("%s: status %d and %q, want %d and %q", name, got, out.String(), c.status, c.says)
		}
	}
	after := launch(t, locker(t, writer, "--verbose", "--timeout", "60", "--conflict-exit-code", "5", "URL", "echo", "After timeout."))
	s.session("boss").awaitWaiting("/phone_lock", 1)
	general.to.Close()
	general.says(t, "Unlocking")
	after.says(t, "After timeout.")
	general.ended(t, 0)
	after.ended(t, 0)
	if r := finish(t, locker(t, writer, "--shared", "URL", "true")); r.status != 73 {
		t.Errorf("an account that cannot share: %+v", r)
	}
	s.session("other").wantFree("/phone_lock", 0)
}

// TestNetlockTakesItsArgumentsAsFlockDoes has cases that are not in the tests of flock.
func TestNetlockTakesItsArgumentsAsFlockDoes(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	url := s.lockURL("phone_lock")
	s.session("other").Want(257, "MKD /other_lock")
	other := s.lockURL("other_lock")
	for _, c := range []struct {
		url    string
		args   []string
		status int
		says   string
	}{
		{url, []string{"URL", "-c", "echo shell; exit 3"}, 3, "shell\n"},
		{url, []string{"URL", "sh", "-c", "kill -9 $$"}, 128 + 9, ""},
		{url, []string{"URL", "sh", "-c", "kill -TERM $$"}, 128 + 15, ""},
		{url, []string{"-n", "URL", "echo", "-n", "no dashes"}, 0, "no dashes"},
		{url, []string{"URL", "--", "echo", "dashes"}, 0, "dashes\n"},
		{url, []string{"URL", "sh", "-c", "echo $1", "--", "--"}, 0, "--\n"},
		{other, []string{"-n", "-w", "9", "URL", "true"}, 75, "held by other@"},
		{url, []string{"-s", "-x", "-w", "0", "URL", "echo", "the last counts"}, 0, "the last counts\n"},
		{other, []string{"-w", "2", "--conflict-exit-code", "0", "URL", "false"}, 0, "held by other@"},
		{url, []string{"--verbose", "URL", "sh", "-c", "exit 75"}, 75, "the command has ended with status 75\n"},
		{other, []string{"--verbose", "-n", "URL", "true"}, 75, "taking the lock other_lock"},
	} {
		if r := finish(t, locker(t, c.url, append([]string{"run"}, c.args...)...)); r.status != c.status || !strings.Contains(r.out, c.says) {
			t.Errorf("%q: %+v, want %d and %q", c.args, r, c.status, c.says)
		}
	}
}

// TestNetlockOnEachServer runs netlock on ftplockd and on the other installed servers.
func TestNetlockOnEachServer(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, h host) {
		url := fmt.Sprintf("ftp://%s:%s@%s/%%2F%s/a", h.server.User, h.server.Password, h.server.Address, strings.TrimPrefix(h.dir, "/"))
		holder := launch(t, locker(t, url, "URL", "sh", "-c", "echo here $NETLOCK_PATH; read x"))
		holder.says(t, "here "+h.dir+"/a")
		if r := finish(t, locker(t, url, "-n", "-E", "9", "URL", "echo", "too early")); r.status != 9 || strings.Contains(r.out, "too early") {
			t.Errorf("while it is held: %+v", r)
		}
		holder.to.Close()
		if r := finish(t, locker(t, url, "-w", "60", "URL", "echo", "then")); r.status != 0 || r.out != "then\n" {
			t.Errorf("after that: %+v", r)
		}
		holder.exit(t)
		local := filepath.Join(t.TempDir(), "local")
		writeFile(t, local, []byte("anna\t1\n"))
		remote := filepath.Dir(h.dir+"/a") + "/phone.tsv"
		if !h.tokens {
			remote = h.dir + "/phone.tsv"
		}
		for _, args := range [][]string{{"put", "URL", local, remote}, {"get", "URL", remote, local + ".back"}, {"URL", "netlock", "get", "URL", remote, local + ".inside"}} {
			if r := finish(t, locker(t, url, args...)); r.status != 0 {
				t.Errorf("%q: %+v", args, r)
			}
		}
		for _, name := range []string{".back", ".inside"} {
			wantFile(t, local+name, "anna\t1\n")
		}
	})
}
