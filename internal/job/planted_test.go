package job_test

import (
	"flag"
	"testing"

	"github.com/ftplockd/ftplockd/internal/planted"
)

var modelBugs = flag.Int("model.bugs", 1, "so many of the planted bugs, drawn at random, the model test has to find; -1: all")

// plantedBugs are bugs that the model test must find: the text in a file, and what replaces it.
var plantedBugs = []planted.Bug{
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

// TestModelFindsPlantedBugs shows that the model test can fail.
func TestModelFindsPlantedBugs(t *testing.T) {
	planted.Find(t, "Model", plantedBugs, *modelBugs, "-model.runs", "1000")
}
