package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// history returns event and token of each line that "ftplockd history" prints.
func (s *server) history(name string) (all []string) {
	s.t.Helper()
	lines := strings.Split(strings.TrimSpace(s.command("history", name)), "\n")
	for _, line := range lines[1:] {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			s.t.Fatalf("a line of the history: %q", line)
		}
		all = append(all, fields[1]+" "+fields[4])
	}
	return all
}

// A release and a break have the token of the hold that they ended, as the client and the log have it.
func TestHistoryHasTheTokenOfTheHoldThatEnded(t *testing.T) {
	t.Parallel()
	s := startServer(t, "[[lock]]\nmatch = '/locks/**'\n[[lock]]\nmatch = '/shared/**'\nshared = ['"+account+"', 'other']\n")
	c, other := s.session(account), s.session("other")
	token := func(c *session, name string) uint64 {
		t.Helper()
		return uint64(harness.Token(c.Want(257, "MKD "+name)))
	}
	first := token(c, "/locks/a")
	c.Want(250, "RMD /locks/a")
	second := token(other, "/locks/a")
	s.session("boss").Breaks("/locks/a")
	s.sees("/locks/a", "acquire", first, "release", first, "acquire", second, "break", second)

	one, two := token(c, "/shared/b"), token(other, "/shared/b")
	c.Want(250, "RMD /shared/b")
	other.Want(250, "RMD /shared/b")
	s.sees("/shared/b", "acquire", one, "acquire", two, "release", one, "release", two)
	s.stop()
}

// sees checks events and tokens of a history.
func (s *server) sees(name string, want ...any) {
	s.t.Helper()
	var lines []string
	for i := 0; i < len(want); i += 2 {
		lines = append(lines, fmt.Sprint(want[i], " ", want[i+1]))
	}
	if got, want := strings.Join(s.history(name), ", "), strings.Join(lines, ", "); got != want {
		s.t.Errorf("the history of %s is\n%s, want\n%s", name, got, want)
	}
}
