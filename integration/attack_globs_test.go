package integration

import (
	"strings"
	"testing"
	"time"
)

// served fails the test if a harmless client, which is logged in, is not served.
func (s *session) served(what string) {
	s.T.Helper()
	for _, line := range []string{"NOOP", "MKD /locks/harmless", "RMD /locks/harmless"} {
		if got := s.ask(line); !strings.HasPrefix(got, "2") {
			s.T.Errorf("%s: %s: %q", what, line, got)
		}
	}
}

// TestAttackGlobsThatTakeForEver sends globs whose matching would take longer than anybody waits.
func TestAttackGlobsThatTakeForEver(t *testing.T) {
	t.Parallel()
	s := startServer(t, "[locks]\ndirectories = false\n")
	harmless, c := s.session(account), s.session("other")
	long := strings.Repeat("a", 200)
	c.Want(257, "MKD /locks/"+long)
	s.write("d/"+long, "")
	for _, glob := range []string{
		strings.Repeat("{*,?}", 30), strings.Repeat("{a,aa}", 30) + "b", strings.Repeat("*a", 60) + "b", strings.Repeat("**/", 60) + "x",
		strings.Repeat("[a-z]*", 60) + "!", strings.Repeat("{", 500), strings.Repeat("{a,", 300) + strings.Repeat("}", 300), strings.Repeat("?*", 100) + "b",
	} {
		for _, line := range []string{"SITE LOCKS /locks/" + glob, "STAT /d/" + glob} {
			if c.ask(line) == "" {
				t.Fatalf("%s: no reply", line)
			}
		}
		for _, line := range []string{"NLST /d/" + glob, "LIST /d/" + glob, "MLSD /d/" + glob} {
			if c.fetch(line) == "" {
				t.Fatalf("%s: no reply", line)
			}
		}
		harmless.served(glob)
	}
	// A client that leaves in the middle leaves nothing behind that keeps the server from its end.
	for range 4 {
		if err := s.session("other").Send("SITE LOCKS /locks/" + strings.Repeat("{*,?}", 30)); err != nil {
			t.Fatal(err)
		}
	}
	begun := time.Now()
	s.stop()
	if took := time.Since(begun); took > 15*time.Second {
		t.Errorf("the server took %v to stop", took)
	}
}
