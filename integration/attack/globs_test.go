package attack

import (
	"os"
	"strings"
	"testing"
	"time"
)

// served fails the test if a harmless client, which is logged in, is not served soon.
func (c *client) served(what string) {
	c.t.Helper()
	begun := time.Now()
	for _, line := range []string{"NOOP", "MKD /locks/harmless", "RMD /locks/harmless"} {
		if got := c.say(line); !strings.HasPrefix(got, "2") {
			c.t.Errorf("%s: %s: %q", what, line, got)
		}
	}
	if took := time.Since(begun); took > 3*time.Second {
		c.t.Errorf("%s: three commands took %v", what, took)
	}
}

// TestGlobsThatTakeForEver sends globs whose matching would take longer than anybody waits.
func TestGlobsThatTakeForEver(t *testing.T) {
	s := start(t, "[locks]\ndirectories = false\n")
	harmless, c := s.login("owner"), s.login("mallory")
	long := strings.Repeat("a", 200)
	c.must("257", "MKD /locks/"+long)
	s.write("files/d/"+long, "")
	for _, glob := range []string{
		strings.Repeat("{*,?}", 30), strings.Repeat("{a,aa}", 30) + "b", strings.Repeat("*a", 60) + "b", strings.Repeat("**/", 60) + "x",
		strings.Repeat("[a-z]*", 60) + "!", strings.Repeat("{", 500), strings.Repeat("{a,", 300) + strings.Repeat("}", 300), strings.Repeat("?*", 100) + "b",
	} {
		begun := time.Now()
		for _, line := range []string{"SITE LOCKS /locks/" + glob, "STAT /d/" + glob} {
			if c.say(line) == "" {
				t.Fatalf("%s: no reply", line)
			}
		}
		for _, line := range []string{"NLST /d/" + glob, "LIST /d/" + glob, "MLSD /d/" + glob} {
			c.fetch(line)
		}
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("%.40s: took %v", glob, took)
		}
		harmless.served(glob)
	}
	// A client that leaves in the middle leaves nothing behind that keeps the server from its end.
	for range 4 {
		go s.login("mallory").say("SITE LOCKS /locks/" + strings.Repeat("{*,?}", 30))
	}
	begun := time.Now()
	if err := s.process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if _, err := harmless.conn.Read(make([]byte, 4096)); err != nil {
		t.Error(err)
	}
	if _, err := s.process.Wait(); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > 15*time.Second {
		t.Errorf("the server took %v to stop", took)
	}
}
