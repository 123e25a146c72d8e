package integration

import (
	"fmt"
	"path/filepath"
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

// quick is for tests that wait for the end of a job.
const quick = automaticRule + "wait = \"300ms\"\nturn = \"0s\"\ngrace = \"200ms\"\n"

// startAutomatic starts a server with two accounts and a file in /www.
func startAutomatic(t *testing.T, rules string) *server {
	s := newServer(t, rules)
	s.configure(rules)
	s.start()
	s.write("www/x", "0")
	return s
}

func TestOperatorsSeeAutomaticLocksAndRefusedJobs(t *testing.T) {
	t.Parallel()
	s := startAutomatic(t, quick)
	a, b := s.session(account), s.session("other")
	if err := a.Store("/www/x", []byte("1")); err != nil {
		t.Fatal(err)
	}
	b.Want(550, "DELE /www/x", "being changed by "+account+"@127.0.0.1 since ")
	b.Want(550, "MKD /www/d", "being changed by")
	a.Want(250, "DELE /www/x")
	s.wants("locks", "/www/.deploy-lock", "changes: 2, last /www/x", "REFUSED AT", "other", "being changed by "+account)
	s.wants("status --json", `"refused_jobs"`)
	s.wants("locks --json", `"automatic": true`, `"files": 2`)
	s.wants("history /www", "acquire", "publish", "/www/x under /www/.deploy-lock", "refuse", "being changed by "+account)
	s.log.Await(t, `msg="job refused"`, 1)

	s.wants("clear /www/.deploy-lock --job other@127.0.0.9", "") // another job
	a.Want(221, "QUIT")
	s.awaitEnd(t)
	b.Want(550, "MKD /www/d", "being changed by")
	s.wants("clear /www/.deploy-lock --job other", "cleared, refused jobs: 1")
	b.Want(257, "MKD /www/d")
	s.wants("break /www/.deploy-lock --token 2 --reason stop", "")
	b.Want(550, "RMD /www/d", "broken by administrator, stop")
	s.wants("history /www", "break", "stop")
}

// awaitEnd returns when the automatic lock has ended.
func (s *server) awaitEnd(t *testing.T) {
	t.Helper()
	c := s.session("boss")
	defer c.Conn.Close()
	harness.Await(t, "the lock ends", func() bool {
		r, err := c.Try("SITE LOCK INFO /www/.deploy-lock")
		return err == nil && (r.Code != 211 || strings.Contains(r.Text, "type=free"))
	})
}

// wants runs a command and checks its output.
func (s *server) wants(command string, texts ...string) {
	s.t.Helper()
	fields := strings.Fields(command)
	r := run(s.t, binary, append(fields, "--state", s.state)...)
	for _, text := range texts {
		if !strings.Contains(r.out, text) {
			s.t.Errorf("%s: no %q in:\n%s", command, text, r.out)
		}
	}
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

// TestReloadsWhileJobsRun checks what operations.md promises.
func TestReloadsWhileJobsRun(t *testing.T) {
	t.Parallel()
	s := startAutomatic(t, "[[lock]]\nmatch = \"/locks/**\"\n")
	a, b := s.session(account), s.session("other")
	a.Want(213, "SIZE /www/x")
	s.configure(quick)
	s.mustReload() // the rule is new: a look of before is not known
	if err := b.Store("/www/x", []byte("1")); err != nil {
		t.Fatal(err)
	}
	b.Want(221, "QUIT")
	s.awaitEnd(t)
	a.Want(550, "DELE /www/x", "changed by other@127.0.0.1 (1 file")

	c := s.session("other")
	c.Want(257, "MKD /www/d")
	s.configure(strings.Replace(quick, "automatic = true", `automatic = "report"`, 1))
	s.mustReload() // nothing is refused any more
	a.Want(250, "DELE /www/x")
	s.configure("[[lock]]\nmatch = \"/locks/**\"\n")
	s.mustReload() // the lock ends with its job
	a.Want(250, "RMD /www/d")
	s.wants("locks", "/www/.deploy-lock")
	c.Want(221, "QUIT")
	s.awaitEnd(t)
}

// TestAChangeWaitsNoLongerThanItsRule has a change wait while the rule is removed, or made to report only.
func TestAChangeWaitsNoLongerThanItsRule(t *testing.T) {
	t.Parallel()
	for name, rules := range map[string]string{
		"removed": "[[lock]]\nmatch = \"/locks/**\"\n",
		"reports": strings.Replace(automaticRule, "automatic = true", `automatic = "report"`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			s := startAutomatic(t, automaticRule)
			a, b := s.session(account), s.session("other")
			a.Want(550, "MKD /www") // it acquires the lock, and changes nothing
			done := make(chan string)
			go func() {
				r, err := b.Try("DELE /www/x")
				done <- fmt.Sprint(r, err)
			}()
			s.awaitQueue(t, "/www/.deploy-lock", 1)
			s.configure(rules)
			s.mustReload()
			if got := <-done; !strings.Contains(got, "removed") {
				t.Error(got)
			}
		})
	}
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

func TestAutomaticLocksHaveNoDirectory(t *testing.T) {
	t.Parallel()
	s := startAutomatic(t, automaticRule)
	a := s.session(account)
	if err := a.Store("/www/x", []byte("1")); err != nil {
		t.Fatal(err)
	}
	s.stop()
	s.start()
	if found, _ := filepath.Glob(s.path("www/.*")); len(found) > 0 {
		t.Errorf("in the site: %v", found)
	}
	if !strings.Contains(s.command("locks"), "/www/.deploy-lock") {
		t.Error("a restart ended the lock")
	}
}

// TestTheServerWarnsOfTwoRunsThatItCannotDistinguish lets two sessions of one account and address upload one file, and then one
// session upload it twice.
func TestTheServerWarnsOfTwoRunsThatItCannotDistinguish(t *testing.T) {
	t.Parallel()
	const sign = `msg="two programs seem to run as one job"`
	for sessions := range 2 {
		s := startAutomatic(t, quick)
		first := s.session(account)
		second := first
		if sessions == 1 {
			second = s.session(account)
		}
		for _, c := range []*session{first, second} {
			if err := c.Store("/www/x", []byte("text")); err != nil {
				t.Fatal(err)
			}
		}
		if sessions == 1 {
			s.log.Await(t, sign, 1)
			s.wants("history /www", "two programs seem to run as one job")
		} else if history := s.command("history", "/www"); strings.Contains(history, "two programs") {
			t.Errorf("a single program is taken for two:\n%s", history)
		}
	}
}
