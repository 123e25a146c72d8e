package integration

import (
	"encoding/json"
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
