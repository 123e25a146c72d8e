package integration

import (
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
)

const automaticRule = `
[[lock]]
match     = "/www/.deploy-lock"
protects  = ["/www/**"]
automatic = true
`

// startAutomatic starts a server with two accounts and a file in /www.
func startAutomatic(t *testing.T, rules string) *server {
	s := newServer(t, rules)
	s.configure(rules)
	s.start()
	s.write("www/x", "0")
	return s
}

// awaitEnd returns after the lock has ended.
func (s *server) awaitEnd(t testing.TB, name string) {
	t.Helper()
	c := s.session("boss")
	defer c.Conn.Close()
	harness.Await(t, "the lock ends", func() bool {
		r, err := c.Try("SITE LOCK INFO " + name)
		return err == nil && (r.Code != 211 || strings.Contains(r.Text, "type=free"))
	})
}

func TestATransferWaitsForTheEndOfAJob(t *testing.T) {
	t.Parallel()
	s := startAutomatic(t, automaticRule+"turn = \"0s\"\ngrace = \"200ms\"\n")
	a, b := s.session(account), s.session("other")
	if err := a.Store("/www/x", []byte("1")); err != nil {
		t.Fatal(err)
	}
	listed := make(chan error)
	go func() {
		_, err := b.Retrieve("RETR /www/x")
		listed <- err
	}()
	s.awaitQueue(t, "/www/.deploy-lock", 1)
	if err := a.Store("/www/y", []byte("1")); err != nil {
		t.Fatal(err)
	}
	a.Want(221, "QUIT")
	if err := <-listed; err != nil {
		t.Fatal(err)
	}
	if err := b.Store("/www/x", []byte("2")); err != nil {
		t.Fatal(err)
	}
	s.wantFile(t, "www/x", "2")
}

func TestConfigCheckRefusesAmbiguousAutomaticRules(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ rules, want string }{
		"right":              {automaticRule, ""},
		"two for one path":   {automaticRule + "[[lock]]\nmatch = \"/l/b\"\nprotects = [\"/www/css/*\"]\nautomatic = true\n", "lock[2].protects[1]"},
		"an ordinary one":    {automaticRule + "[[lock]]\nmatch = \"/l/b\"\nprotects = [\"/www/*.tsv\"]\n", "lock[1].protects[1]"},
		"one for each site":  {"[[lock]]\nmatch = \"/sites/*/.lock\"\nprotects = [\"/sites/$1/**\"]\nautomatic = true\n", ""},
		"several for a path": {"[[lock]]\nmatch = \"**/.lock\"\nprotects = [\"$1/**\"]\nautomatic = true\n", "lock[1].protects[1]"},
		"nothing protected":  {"[[lock]]\nmatch = \"/l\"\nautomatic = \"report\"\n", "lock[1].protects"},
		"another word":       {"[[lock]]\nmatch = \"/l\"\nprotects = [\"/w/**\"]\nautomatic = \"yes\"\n", `must be true, false or "report"`},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, tc.rules)
			r := run(t, binary, "config", "check", s.config)
			if tc.want == "" && r.status != 0 || tc.want != "" && (r.status != 2 || !strings.Contains(r.out, tc.want)) {
				t.Errorf("exit status %d, want %q in:\n%s", r.status, tc.want, r.out)
			}
		})
	}
}
