package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// command runs one of the commands that speak to the server, which must succeed.
func (s *server) command(args ...string) string {
	s.t.Helper()
	return mustRun(s.t, binary, append(args, "--state", s.state)...)
}

// lockView is a part of what "ftplockd locks --json" says of a hold.
type lockView struct {
	Name      string     `json:"name"`
	Holder    string     `json:"holder"`
	Address   string     `json:"address"`
	Session   string     `json:"session"`
	Token     uint64     `json:"token"`
	Age       float64    `json:"age_seconds"`
	Expires   *time.Time `json:"expires"`
	ExpiresIn *float64   `json:"expires_in_seconds"`
	Rule      string     `json:"rule"`
}

func (s *server) locks() (all []lockView) {
	s.t.Helper()
	if err := json.Unmarshal([]byte(s.command("locks", "--json")), &all); err != nil {
		s.t.Fatal(err)
	}
	return all
}

// sessions are the ids of those that are logged in as an account.
func (s *server) sessions(name string) (ids []string) {
	s.t.Helper()
	var all []struct{ ID, Account string }
	if err := json.Unmarshal([]byte(s.command("sessions", "--json")), &all); err != nil {
		s.t.Fatal(err)
	}
	for _, one := range all {
		if one.Account == name {
			ids = append(ids, one.ID)
		}
	}
	return ids
}

// onlySessionOf returns when one session is logged in and no more, and that is the account's.
func (s *server) onlySessionOf(t testing.TB, name string) {
	t.Helper()
	harness.Await(t, "the other sessions end", func() bool {
		return len(s.sessions(name)) == 1 && strings.Count(s.command("sessions"), "\n") == 2
	})
}

func TestAdministratorSeesBreaksAndKicks(t *testing.T) {
	t.Parallel()
	s := startServer(t, hour+"on_disconnect = \"release\"\n")
	c := s.session(account)
	granted := harness.Token(c.Want(257, "MKD /locks/job"))
	id := s.sessions(account)[0]

	l := s.locks()
	if len(l) != 1 || l[0].Name != "/locks/job" || l[0].Holder != account || l[0].Address != "127.0.0.1" || l[0].Session != id ||
		l[0].Token != granted || l[0].Rule != "/locks/**" || l[0].Expires == nil || *l[0].ExpiresIn <= 3500 || *l[0].ExpiresIn > 3600 {
		t.Errorf("locks --json: %+v", l)
	}
	table := strings.Fields(strings.Split(s.command("locks"), "\n")[1])
	if want := []string{"/locks/job", account, "127.0.0.1", id}; strings.Join(table[:4], " ") != strings.Join(want, " ") {
		t.Errorf("locks: %q", table)
	}
	if r := run(t, binary, "break", "/locks/job", "--token", "1000", "--state", s.state); r.status != 1 || !strings.Contains(r.out, "/locks/job is not held with token 1000") {
		t.Errorf("break with another token: exit status %d: %s", r.status, r.out)
	}
	if out := s.command("break", "/locks/job", "--token", fmt.Sprint(granted), "--reason", "the scanner hangs"); out != "broken\n" {
		t.Errorf("break: %q", out)
	}
	c.Want(550, "RMD /locks/job", "taken away", "broken by administrator, the scanner hangs")

	c.Want(257, "MKD /locks/job")
	if out := s.command("kick", id); out != "kicked\n" {
		t.Errorf("kick: %q", out)
	}
	c.WantReply(421, "administrator")
	s.log.Await(t, "lock=/locks/job cause=disconnect", 1)
	s.session("other").Want(257, "MKD /locks/job")

	history := strings.Split(strings.TrimSpace(s.command("history", "/locks/job")), "\n")
	var events []string
	for _, line := range history[1:] {
		events = append(events, strings.Fields(line)[1])
	}
	if got := strings.Join(events, " "); got != "acquire break acquire disconnect acquire" {
		t.Errorf("history:\n%s", strings.Join(history, "\n"))
	}
	if !strings.Contains(history[2], "administrator") || !strings.Contains(history[2], "the scanner hangs") {
		t.Errorf("the break in the history: %s", history[2])
	}
	for _, args := range [][]string{{"break", "/locks/free"}, {"kick", id}} {
		if r := run(t, binary, append(args, "--state", s.state)...); r.status != 1 || !strings.HasPrefix(r.out, "ftplockd: ") {
			t.Errorf("%v: exit status %d: %s", args, r.status, r.out)
		}
	}
}

func TestWatchShowsEachChange(t *testing.T) {
	t.Parallel()
	s := startServer(t, hour)
	p := launch(t, command(t, binary, "locks", "--watch", "--state", s.state))
	p.says(t, "no locks are held")
	c := s.session(account)
	c.Want(257, "MKD /locks/job")
	if head, row := p.line(), p.line(); !strings.HasPrefix(head, "NAME ") || !strings.HasPrefix(row, "/locks/job ") {
		t.Errorf("when a lock is taken: %q, %q", head, row)
	}
	c.Want(250, "RMD /locks/job")
	p.says(t, "no locks are held")
}
