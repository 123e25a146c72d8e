package job_test

import (
	"encoding/json"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var modelBugs = flag.Int("model.bugs", 1, "so many of the planted bugs, drawn at random, the model test has to find; -1: all")

// planted are bugs that the model test must find: the text in a file, and what replaces it.
var planted = []struct{ name, file, is, becomes string }{
	{"a job overwrites changes made since its look", "visit.go", "if s.changes <= seen {", "if s.changes <= seen || true {"},
	{"a job that is refused while it waits gets the lock", "change.go", "refused := v.refused\n\tif refused == nil && changes", "var refused *Error\n\tif refused == nil && changes"},
	{"a job that waited does not compare the counter", "change.go", "refused = v.stale(now.Boot, m.unknownUntil)\n", "\n"},
	{"each session renews what a job remembers of its look", "visit.go", "now >= m.looked+rememberLook", "now >= m.ended+rememberLook"},
	{"a refusal is forgotten after the grace", "visit.go", "now < m.ended+rememberRefused", "false"},
	{"a used look is remembered for ten minutes", "visit.go", "|| m.changed && now >= m.ended+rememberUsed", ""},
	{"a turn does not end", "change.go", "g.turn = now + turn", "g.turn = 0"},
	{"a lock ends with its turn though it is used", "change.go", "held.turn = 0\n", "\n"},
	{"a lock outlives its sessions", "change.go", "v.sessions == 0 && (at == 0", "false && (at == 0"},
	{"a broken lock refuses nothing", "job.go", "case lock.CauseExpire, lock.CauseBreak, lock.CauseHostGone:", "case lock.CauseExpire:"},
	{"after a start nobody is unknown", "job.go", "if m.table.Granted() {", "if false {"},
}

// TestModelFindsPlantedBugs shows that the model test can fail: it builds the package with one of the bugs at a time.
func TestModelFindsPlantedBugs(t *testing.T) {
	bugs := planted
	for _, bug := range bugs {
		if source, err := os.ReadFile(bug.file); err != nil || strings.Count(string(source), bug.is) != 1 {
			t.Errorf("%s does not contain %q once: %v", bug.file, bug.is, err)
		}
	}
	if n := *modelBugs; n >= 0 && n < len(bugs) {
		bugs = nil
		for _, i := range rand.Perm(len(planted))[:n] {
			bugs = append(bugs, planted[i])
		}
	}
	for _, bug := range bugs {
		t.Run(bug.name, func(t *testing.T) {
			source, err := os.ReadFile(bug.file)
			if err != nil {
				t.Fatal(err)
			}
			here, err := filepath.Abs(bug.file)
			if err != nil {
				t.Fatal(err)
			}
			wrong, overlay := filepath.Join(t.TempDir(), bug.file), filepath.Join(t.TempDir(), "overlay.json")
			replace, err := json.Marshal(map[string]map[string]string{"Replace": {here: wrong}})
			if err != nil {
				t.Fatal(err)
			}
			for file, text := range map[string]string{wrong: strings.Replace(string(source), bug.is, bug.becomes, 1), overlay: string(replace)} {
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			out, err := exec.CommandContext(t.Context(), "go", "test", "-overlay", overlay, "-run", "^TestModel$", "-count", "1",
				"-timeout", "5m", "-model.runs", "1000", ".").CombinedOutput()
			switch {
			case err == nil:
				t.Error("the model test did not find it")
			case !strings.Contains(string(out), "--- FAIL: TestModel") && !strings.Contains(string(out), "panic:"):
				t.Errorf("the model test did not run: %s", out)
			}
		})
	}
}
