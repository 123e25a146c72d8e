package integration

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestNetlockAsTheTestsOfFlock does with netlock what the tests of util-linux (tests/ts/misc/flock) do with flock: one command holds the lock
// together with others, and each case asks for it meanwhile. What takes three seconds there lasts here until the test ends it.
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
}

// TestNetlockOnEachServer runs netlock on ftplockd and on the servers of others that are there.
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
