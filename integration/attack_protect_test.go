package integration

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
)

// TestAttackWaysAroundProtects tries to change a file that a lock protects without holding the lock.
func TestAttackWaysAroundProtects(t *testing.T) {
	t.Parallel()
	for _, directories := range []string{"true", "false"} {
		s := startServer(t, "[locks]\ndirectories = "+directories+"\n[[lock]]\nmatch = '/data/*_lock'\nprotects = ['/data/$1.tsv']\n")
		s.write("data/phone.tsv", "the list")
		s.write("other/file", "harmless")
		for link, to := range map[string]string{"link": "data", "data/alias.txt": "phone.tsv", "data/sub": "."} {
			if err := os.Symlink(to, s.path(link)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Link(s.path("data/phone.tsv"), s.path("other/hard")); err != nil {
			t.Fatal(err)
		}
		owner := s.session(account)
		owner.Want(257, "MKD /data/phone_lock")
		owner.Want(200, "TYPE I")
		c := s.session("other")
		c.Want(200, "TYPE I")
		before, tries := s.snapshot(s.root, "data/phone.tsv"), 0
		check := func(what, got string) {
			t.Helper()
			tries++
			if after := s.snapshot(s.root, "data/phone.tsv"); after != before {
				t.Fatalf("%s: %q; the file is %s", what, got, after)
			}
		}
		for _, p := range []string{
			"/data/phone.tsv", "/data//phone.tsv", "/data/./phone.tsv", "/data/../data/phone.tsv", "/link/phone.tsv", "/data/sub/phone.tsv",
			"/data/sub/sub/phone.tsv", "/link/sub/phone.tsv", "data/phone.tsv", "/data/phone.tsv/", "/other/../data/phone.tsv", "/data/phone.tsv/.",
		} {
			for _, verb := range []string{"STOR", "APPE", "STOU"} {
				check(verb+" "+p, c.put(verb+" "+p, "forged"))
			}
			c.ask("REST 3")
			check("REST, STOR "+p, c.put("STOR "+p, "forged"))
			for _, line := range []string{"DELE " + p, "RMD " + p, "MKD " + p, "MFMT 20200101000000 " + p, "SITE CHMOD 777 " + p} {
				check(line, c.ask(line))
			}
			c.put("STOR /other/mine", "forged")
			c.ask("RNFR /other/mine")
			check("RNTO "+p, c.ask("RNTO "+p))
			c.ask("RNFR " + p)
			check("RNFR "+p, c.ask("RNTO /other/away"))
		}
		for _, move := range [][2]string{
			{"/data", "/elsewhere"}, {"/other", "/data"}, {"/link", "/elsewhere"}, {"/data/sub", "/elsewhere"}, {"/data/phone_lock", "/data/x_lock"}, {"/link", "/data"},
		} {
			c.ask("RNFR " + move[0])
			check("RNFR "+move[0], c.ask("RNTO "+move[1]))
			if _, err := os.Stat(s.path("data")); err != nil {
				t.Fatalf("%v: %v", move, err)
			}
		}
		for _, line := range []string{
			"RMD /data/phone_lock", "DELE /data/phone_lock", "SITE LOCK BREAK /data/phone_lock", "SITE LOCK AS x", "MKD /data/phone_lock", "SITE LOCK RENEW /data/phone_lock",
			"SITE CHMOD 777 /other/hard", "MFMT 20200101000000 /other/hard", "SITE LOCK BREAK 1 /data/phone_lock",
		} {
			check(line, c.ask(line))
		}
		check("STOR again", c.put("STOR /data/phone.tsv", "forged"))
		// Others' account names and passwords do not help either: mallory is not owner.
		if got := s.session("other").ask("RMD /data/phone_lock"); strings.HasPrefix(got, "250") {
			t.Errorf("RMD of somebody else's lock: %s", got)
		}

		// An upload under a lock that is lost in the middle of it.
		data := owner.begin("STOR /data/phone.tsv")
		io.WriteString(data, "too late")
		s.session("boss").Breaks("/data/phone_lock")
		data.Close()
		check("an upload whose lock was broken", fmt.Sprint(owner.Done()))
		t.Logf("%d tries", tries)
	}
}

// A protected file that a symbolic link replaces, or that is one and is renamed, has a row in the history and a line in the log.
func TestRenamedLinkIsInTheHistory(t *testing.T) {
	t.Parallel()
	s := startServer(t, "[[lock]]\nmatch = '/data/*_lock'\nprotects = ['/data/$1.tsv']\n")
	s.write("data/phone.tsv", "the list")
	if err := os.Symlink("data/phone.tsv", s.path("link")); err != nil {
		t.Fatal(err)
	}
	c := s.session(account)
	c.Want(257, "MKD /data/phone_lock")
	for _, move := range [][2]string{{"/link", "/data/phone.tsv"}, {"/data/phone.tsv", "/away"}} {
		c.Want(350, "RNFR "+move[0])
		c.Want(250, "RNTO "+move[1])
	}
	history := s.command("history", "/data/phone_lock")
	for _, want := range []string{"renamed from /link", "renamed to /away"} {
		if !strings.Contains(history, want) {
			t.Errorf("the history lacks %q:\n%s", want, history)
		}
		if !strings.Contains(s.log.String(), want) {
			t.Errorf("the log lacks %q", want)
		}
	}
}
