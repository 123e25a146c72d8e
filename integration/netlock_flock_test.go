package integration

import (
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
