package lock

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// seeds are histories that the model test makes first, so that it finds the loss of a guard without luck. Each step is a verb, the session,
// and a name or a value, see play. The model has no expectations of one history: its rules say what must be true.
var seeds = map[string]string{
	"the end at the age":                      "open a ann; acquire a /l/a; pass 2m5s",
	"a break with an old token":               "open a ann; acquire a /l/a; release a /l/a; acquire a /l/a; break 1",
	"a limit of the account":                  "open a ann; acquire a /l/a; acquire a /l/b; open b ann; most b 2; acquire b /s/x",
	"lock_delay":                              "open a ann; acquire a /s/x; pass 2m; open b ben; acquire b /s/x; wait b /s/x; pass 3s; release b /s/x; acquire a /s/x",
	"a limit":                                 "open a ann; acquire a /p/1; acquire a /p/2; open b ben; wait b /p/3; open c reader; wait c /p/4; release a /p/1",
	"a writer before a reader":                "open a reader; acquire a /s/x; open b ann; wait b /s/x; open c reader; acquire c /s/x; wait c /s/x; release a /s/x",
	"an adoption":                             "open a ann job; acquire a /l/a; open b ann other; acquire b /l/a; open c ben job; acquire c /l/a; pass 1m; open d ann job; acquire d /l/a",
	"an undo of an adoption":                  "open a ann job; acquire a /l/a; open b ann job; acquire b /l/a; suspend; undo 2; resume; pass 2s",
	"an undo for an ended session":            "open a ann job; acquire a /l/g; open b ann job; acquire b /l/g; close a; undo 2; pass 9s",
	"an undo for a session with another hold": "open a reader job; acquire a /s/x; open b reader job; acquire b /s/x; key a other; acquire a /s/x; undo 2; pass 1s; release a /s/x",
	"a place in the queue":                    "open a ann; acquire a /l/a; open b ben; wait b /l/a; pass 19s; open c reader; wait c /l/a; wait b /l/a; release a /l/a",
	"a place for the job":                     "open a ann; acquire a /l/a; open b ben job; wait b /l/a; pass 19s; open c reader; wait c /l/a; open d ben job; wait d /l/a; release a /l/a",
	"a place that is too old":                 "open a ann; acquire a /l/a; open b ben; wait b /l/a; pass 20s; open c reader; wait c /l/a; wait b /l/a; release a /l/a",
	"a place of another job":                  "open a ann; acquire a /l/a; open b ben job; wait b /l/a; pass 19s; open c reader; wait c /l/a; open d ben other; wait d /l/a; release a /l/a",
	"a place of another account":              "open a ann; acquire a /l/a; open b ben job; wait b /l/a; pass 19s; open c ann; wait c /l/a; open d reader job; wait d /l/a; release a /l/a",
	"a place that was used":                   "open a ann; acquire a /l/a; open b ben; wait b /l/a; pass 16s; release a /l/a; acquire b /l/a; release b /l/a; acquire a /l/a; open c reader; wait c /l/a; wait b /l/a; release a /l/a",
	"a change of a directory":                 "open a ann; acquire a /l/g/m; exclude a /l; release a /l/g/m; exclude a /l/g; acquire a /l/g/m; written",
	"a change of a file":                      "open a ann job; acquire a /l/a; write a /l/a; release a /l/a; break 1; gone 1; open b ann job; acquire b /l/a; pass 3m; written",
	"a change by another client":              "open a ann; acquire a /l/a; open b ben; write b /l/a; open c reader; acquire c /s/x; write c /s/x",
	"a lock below another client's":           "open a ann; acquire a /l/g; open b ben; acquire b /l/g/m; acquire a /l/g/m; release a /l/g",
	"an idle group with a member":             "open a ann job; acquire a /l/g; open b ann job; acquire b /l/g/m; pass 30s; touch b; pass 39s; pass 2s",
	"an old group with a member":              "open a ann job; age a 60s; acquire a /l/g; open b ann job; acquire b /l/g/m; pass 35s; touch b; pass 30s",
	"a group that outlives its session":       "open a ann job; acquire a /l/g; open b ann job; acquire b /l/g/m; close a; pass 20s; close b; pass 7s",
	"an old group without its session":        "open a ann job; age a 60s; acquire a /l/g; open b ann job; acquire b /l/g/m; close a; pass 35s; touch b; pass 30s",
	"an idle group without its session":       "open a ann job; acquire a /l/g; open b ann job; acquire b /l/g/m; close a; pass 1m",
}

func TestModelSeeds(t *testing.T) {
	for name, steps := range seeds {
		t.Run(name, func(t *testing.T) { newModel(t, 1, false).play(steps) })
	}
}

// play makes the steps of a seed. Locks have no directories.
func (m *model) play(steps string) {
	sessions := make(map[string]*Session)
	for step := range strings.SplitSeq(steps, ";") {
		f := append(strings.Fields(step), "", "", "")
		s, name := sessions[f[1]], Name(f[2])
		d, _ := time.ParseDuration(f[1])
		token, _ := strconv.Atoi(f[1])
		switch f[0] {
		case "open": // with an account and a job key
			sessions[f[1]] = m.open(f[2], "10.0.0.1", f[3])
		case "acquire", "wait":
			m.acquire(s, name, f[0] == "wait", false)
		case "release":
			m.release(s, name)
		case "write":
			m.write(s, name)
		case "exclude":
			m.exclude(s, name)
		case "written": // the end of a write or exclude
			m.endWrite(0)
		case "close":
			m.close(s)
		case "touch":
			m.touch(s)
		case "most":
			most, _ := strconv.Atoi(f[2])
			s.SetMaxLocks(most)
		case "age":
			age, _ := time.ParseDuration(f[2])
			s.SetAge(age)
		case "key":
			_ = s.SetJobKey(f[2])
		case "undo": // by token, as break and gone
			m.undo(slices.IndexFunc(m.undoable, func(h Hold) bool { return h.Token == Token(token) }))
		case "break", "gone":
			m.endByToken(Token(token), f[0] == "gone")
		case "suspend", "resume":
			m.invalid = f[0] == "suspend"
		case "pass":
			for ; d > 0; d -= time.Second {
				m.clock.step(time.Second)
				m.settle()
				m.check()
			}
		default:
			m.Fatalf("unknown step %q", step)
		}
		m.settle()
		m.check()
	}
}
