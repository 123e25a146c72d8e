package integration

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// command runs a command of the operator, which must succeed.
func (s *server) command(args ...string) string {
	s.t.Helper()
	return mustRun(s.t, binary, append(args, "--state", s.state)...)
}

// lockView is a part of a hold in the output of "ftplockd locks --json".
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

// sessions returns the ids of the sessions of an account.
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

// get requests a path of the page, and returns the status and the body.
func (s *server) get(path string) (status int, body string) {
	s.t.Helper()
	client := http.Client{Timeout: patience}
	defer client.CloseIdleConnections()
	answer, err := client.Get(s.page + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// onlySessionOf returns when only one session is logged in, and that one is of the account.
func (s *server) onlySessionOf(t testing.TB, name string) {
	t.Helper()
	harness.Await(t, "the other sessions end", func() bool {
		return len(s.sessions(name)) == 1 && strings.Count(s.command("sessions"), "\n") == 2
	})
}

// reload has the server read its configuration again and returns what the command said.
func (s *server) reload() result {
	s.t.Helper()
	return run(s.t, binary, "reload", "--state", s.state)
}

// mustReload reloads. There may be warnings.
func (s *server) mustReload() {
	s.t.Helper()
	if r := s.reload(); r.status != 0 || !strings.HasSuffix(r.out, "reloaded\n") {
		s.t.Fatalf("reload: exit status %d: %s", r.status, r.out)
	}
}
