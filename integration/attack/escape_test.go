package attack

import (
	"os"
	"strings"
	"testing"
)

// spellings are ways to write a path that an attacker hopes leads out of the tree, or to hidden names in it.
func spellings() []string {
	all := []string{
		"../secret", "/../secret", "/../../../../../../etc/passwd", "....//secret", "/./../secret", "dir/../../secret", "//secret",
		"dir/..//../secret", `..\secret`, `\..\secret`, "%2e%2e/secret", "%2e%2e%2fsecret", "..%c0%afsecret", "\xc0\xae\xc0\xae/secret",
		"~/secret", "~root/secret", "file:///etc/passwd", "/proc/self/environ", "/dev/../../secret",
		"out/secret", "out/../secret", "/out/./secret", "absolute", "absolute/secret", "deep/out/secret", "chain/secret", "loop/x", "parent/secret",
		"dir/../out/secret", "out/state/password", "toFile", "-la ../", "-R /..", " ../secret", "../secret ", "/..", "..", "dir/../..",
		"/.ftplockd-leftovers/x", ".ftplockd-lock-1/x", ".ftplockd-x", "/.ftplockd-leftovers", "dir/.ftplockd-x",
	}
	for _, dots := range []string{"../", "..//", "./../"} {
		all = append(all, strings.Repeat(dots, 40)+"secret", "/dir/"+strings.Repeat(dots, 40)+"etc/passwd")
	}
	return all
}

// TestPathsLeadOutOfTheTree tries each spelling with each command that has a path. Links out of the tree stand in it, as a careless
// administrator may have made them.
func TestPathsLeadOutOfTheTree(t *testing.T) {
	for _, directories := range []string{"true", "false"} {
		s := start(t, "[locks]\ndirectories = "+directories+"\n[[lock]]\nmatch = '/locks/**'\n")
		s.write("secret", "TOP SECRET")
		s.write("files/dir/file", "harmless")
		s.write("files/.ftplockd-leftovers/x", "TOP SECRET")
		s.write("files/.ftplockd-lock-1/x", "TOP SECRET")
		for link, to := range map[string]string{
			"out": "..", "absolute": s.dir, "deep": "dir", "dir/out": "../..", "chain": "out", "loop": "loop", "parent": "dir/../..", "toFile": "../secret",
		} {
			if err := os.Symlink(to, s.path("files/"+link)); err != nil {
				t.Fatal(err)
			}
		}
		c := s.login("mallory")
		c.must("200", "TYPE I")
		outside := func() string {
			return s.snapshot("secret") + s.snapshot("ftplockd.toml") + s.snapshot("files/.ftplockd-leftovers")
		}
		before, tries := outside(), 0
		names, err := os.ReadDir(s.dir)
		if err != nil {
			t.Fatal(err)
		}
		check := func(what, got string) {
			tries++
			if strings.Contains(got, "TOP SECRET") || strings.Contains(got, "root:") || strings.Contains(got, s.dir) {
				t.Errorf("%s: %q", what, got)
			}
		}
		for _, p := range spellings() {
			for _, verb := range []string{"RETR", "LIST", "NLST", "MLSD"} {
				check(verb+" "+p, c.fetch(verb+" "+p))
			}
			for _, verb := range []string{"STOR", "APPE", "STOU"} {
				check(verb+" "+p, c.store(verb+" "+p, "overwritten"))
			}
			for _, line := range []string{
				"SIZE " + p, "MDTM " + p, "MLST " + p, "STAT " + p, "HASH " + p, "XSHA256 " + p, "MFMT 20200101000000 " + p, "SITE CHMOD 777 " + p,
				"MKD " + p, "RMD " + p, "DELE " + p, "SITE LOCK INFO " + p, "SITE LOCKS " + p, "CWD " + p, "RETR secret", "CWD /",
			} {
				if line == "RETR secret" {
					check(line, c.fetch(line))
					continue
				}
				check(line, c.say(line))
			}
			if got := c.say("RNFR " + p); strings.HasPrefix(got, "350") {
				check("RNTO", c.say("RNTO /moved"))
			}
			c.say("RNFR /dir/file")
			check("RNTO "+p, c.say("RNTO "+p))
			s.write("files/dir/file", "harmless")
			if after := outside(); after != before {
				t.Fatalf("%s has changed what is outside of the tree, or hidden in it:\n%s\nto\n%s", p, before, after)
			}
		}
		if after, err := os.ReadDir(s.dir); err != nil || len(after) != len(names) {
			t.Errorf("beside the tree there is %v now: %v", after, err)
		}
		t.Logf("%d tries", tries)
	}
}
