package integration

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// TestStatusAndHistoryAreMachineReadable compares the tables and the JSON of the commands with what a client did.
func TestStatusAndHistoryAreMachineReadable(t *testing.T) {
	t.Parallel()
	s := startServer(t, defaults)
	c := s.session(account)
	token := harness.Token(c.Want(257, "MKD /locks/job"))

	var status struct {
		State                    string
		Ready                    bool
		Started                  time.Time
		Locks, Waiting, Sessions int
		Transfers                []any
	}
	if err := json.Unmarshal([]byte(s.command("status", "--json")), &status); err != nil {
		t.Fatal(err)
	}
	if status.State != "serving" || !status.Ready || status.Locks != 1 || status.Sessions != 1 || status.Waiting != 0 || status.Transfers == nil ||
		time.Since(status.Started) > time.Hour {
		t.Errorf("status --json: %+v", status)
	}
	if table := s.command("status"); !strings.Contains(table, "serving") || !strings.Contains(table, "no transfer is under way") {
		t.Errorf("status: %s", table)
	}

	c.Want(250, "RMD /locks/job")
	type event struct {
		Time  time.Time
		Event string
		Token uint64
		By    string
		Held  *float64 `json:"held_seconds"`
	}
	history := func(args ...string) (all []event) {
		if err := json.Unmarshal([]byte(s.command(append([]string{"history", "/locks/job", "--json"}, args...)...)), &all); err != nil {
			t.Fatal(err)
		}
		return all
	}
	all := history("--since", "1h")
	if len(all) != 2 || all[0].Event != "acquire" || all[1].Event != "release" || all[1].Token != token || all[1].By != account+"@127.0.0.1" || all[1].Held == nil {
		t.Errorf("history --json: %+v", all)
	}
	if later := history("--since", time.Now().Add(time.Hour).UTC().Format(time.RFC3339)); len(later) != 0 {
		t.Errorf("events of the future: %+v", later)
	}
	if r := run(t, binary, "history", "/locks/job", "--since", "yesterday", "--state", s.state); r.status != 2 || !strings.Contains(r.out, "24h") {
		t.Errorf("--since yesterday: exit status %d, %s", r.status, r.out)
	}
}
