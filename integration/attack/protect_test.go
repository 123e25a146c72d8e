package attack

import (
	"io"
	"os"
	"strings"
	"testing"
)

// TestWaysAroundProtects tries to change a file that a lock protects without holding the lock.
func TestWaysAroundProtects(t *testing.T) {
	for _, directories := range []string{"true", "false"} {
		s := start(t, "[locks]\ndirectories = "+directories+"\n[[lock]]\nmatch = '/data/*_lock'\nprotects = ['/data/$1.tsv']\n")
		s.write("files/data/phone.tsv", "the list")
		s.write("files/other/file", "harmless")
		for link, to := range map[string]string{"link": "data", "data/alias.txt": "phone.tsv", "data/sub": "."} {
			if err := os.Symlink(to, s.path("files/"+link)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Link(s.path("files/data/phone.tsv"), s.path("files/other/hard")); err != nil {
			t.Fatal(err)
		}
		owner := s.login("owner")
		owner.must("257", "MKD /data/phone_lock")
		owner.must("200", "TYPE I")
		c := s.login("mallory")
		c.must("200", "TYPE I")
		before, tries := s.snapshot("files/data/phone.tsv"), 0
		check := func(what, got string) {
			t.Helper()
			tries++
			if after := s.snapshot("files/data/phone.tsv"); after != before {
				t.Fatalf("%s: %q; the file is %s", what, got, after)
			}
		}
		for _, p := range []string{
			"/data/phone.tsv", "/data//phone.tsv", "/data/./phone.tsv", "/data/../data/phone.tsv", "/link/phone.tsv", "/data/sub/phone.tsv",
			"/data/sub/sub/phone.tsv", "/link/sub/phone.tsv", "data/phone.tsv", "/data/phone.tsv/", "/other/../data/phone.tsv", "/data/phone.tsv/.",
		} {
			for _, verb := range []string{"STOR", "APPE", "STOU"} {
				check(verb+" "+p, c.store(verb+" "+p, "forged"))
			}
			c.say("REST 3")
			check("REST, STOR "+p, c.store("STOR "+p, "forged"))
			for _, line := range []string{"DELE " + p, "RMD " + p, "MKD " + p, "MFMT 20200101000000 " + p, "SITE CHMOD 777 " + p} {
				check(line, c.say(line))
			}
			c.store("STOR /other/mine", "forged")
			c.say("RNFR /other/mine")
			check("RNTO "+p, c.say("RNTO "+p))
			c.say("RNFR " + p)
			check("RNFR "+p, c.say("RNTO /other/away"))
		}
		for _, move := range [][2]string{
			{"/data", "/elsewhere"}, {"/other", "/data"}, {"/link", "/elsewhere"}, {"/data/sub", "/elsewhere"}, {"/data/phone_lock", "/data/x_lock"}, {"/link", "/data"},
		} {
			c.say("RNFR " + move[0])
			check("RNFR "+move[0], c.say("RNTO "+move[1]))
			if _, err := os.Stat(s.path("files/data")); err != nil {
				t.Fatalf("%v: %v", move, err)
			}
		}
		for _, line := range []string{
			"RMD /data/phone_lock", "DELE /data/phone_lock", "SITE LOCK BREAK /data/phone_lock", "SITE LOCK AS x", "MKD /data/phone_lock", "SITE LOCK RENEW /data/phone_lock",
			"SITE CHMOD 777 /other/hard", "MFMT 20200101000000 /other/hard", "SITE LOCK BREAK 1 /data/phone_lock",
		} {
			check(line, c.say(line))
		}
		check("STOR again", c.store("STOR /data/phone.tsv", "forged"))
		// Others' account names and passwords do not help either: mallory is not owner.
		if got := s.login("mallory").say("RMD /data/phone_lock"); strings.HasPrefix(got, "250") {
			t.Errorf("RMD of somebody else's lock: %s", got)
		}

		// An upload under a lock that is lost in the middle of it.
		data, refused := owner.data("STOR /data/phone.tsv")
		if data == nil {
			t.Fatal(refused)
		}
		io.WriteString(data, "too late")
		boss := s.login("boss")
		info := boss.say("SITE LOCK INFO /data/phone_lock")
		token := strings.Fields(strings.ReplaceAll(info[strings.Index(info, "token ")+6:], ",", " "))[0]
		boss.must("2", "SITE LOCK BREAK "+token+" /data/phone_lock")
		data.Close()
		check("an upload whose lock was broken", owner.reply())
		t.Logf("%d tries", tries)
	}
}
