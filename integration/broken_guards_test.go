package integration

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// goEnv names the file that a slow reaper waits for.
const goEnv = "FTPLOCKD_TEST_GO"

// behind puts text behind a line of a file.
func behind(file, line, text string) harness.Replacement {
	return harness.Replacement{File: file, Old: line, New: line + text}
}

// unguarded changes the sources to those of an ftplockd that lacks one guard, which the environment names: see harness.Overlay.
var unguarded = []harness.Replacement{
	// A release that ends any hold of the name.
	behind("internal/lock/acting.go", "func (st *State) releasable(s *sessionState, name Name, now Instant) (*liveHold, error) {\n", `
	if broken("release") && st.held(name) {
		return st.nodes[name].holds[0], nil
	}
`),
	// A reaper that finds an expired name and ends the present hold of that name. The "slow reaper" only waits. Both wait
	// once, after they found the name, for a file.
	behind("internal/lock/expire.go", "func (t *Table) Expire(ctx context.Context) {\n", `
	if broken("reaper") || broken("slow reaper") {
		for _, held := range t.All() {
			if held.Never || held.Remaining > 0 {
				continue
			}
			defer reaperWaits()()
			if !broken("reaper") {
				continue
			}
			_ = t.end(ctx, func(now Instant, out *outcome) {
				if t.st.held(held.Name) {
					t.st.end(t.st.nodes[held.Name].holds[0], Record{Cause: CauseExpire}, now, out)
				}
			})
			return
		}
	}
`),
	// A write that is checked only at its start.
	behind("internal/lock/writing.go", "func (s *Session) Write(ctx context.Context, writes []Write, fn func([]Permit) error) error {\n", `
	if broken("write") {
		return fn(make([]Permit, len(writes)))
	}
`),
	// An age that is shorter than the rule's.
	behind("internal/lock/next.go", "	if age := h.MaxAge(); age > 0 {\n", `
		if broken("age") {
			age /= 2
		}
`),
	// A stop that gives transfers two seconds, with every guard.
	{File: "internal/server/stop.go", Old: "	drainTime = 20 * time.Second\n", New: "	drainTime = 2 * time.Second\n"},
	// A start that forgets all holds.
	behind("internal/lock/table.go", "	t.start, t.st.last = loaded.Start, loaded.Last\n", `
	if broken("start") {
		loaded.Holds = nil
	}
`),
}

// slowReaper is a file that the build adds to package lock.
const slowReaper = `package lock

import (
	"os"
	"sync/atomic"
	"time"
)

var looked atomic.Bool

func reaperWaits() (done func()) {
	if looked.Swap(true) {
		return func() {}
	}
	println("the reaper has looked")
	for {
		if _, err := os.Stat(os.Getenv("` + goEnv + `")); err == nil {
			return func() { println("the reaper has done its work") }
		}
		time.Sleep(time.Millisecond)
	}
}
`

// brokenBinary builds that ftplockd.
var brokenBinary = sync.OnceValues(func() (string, error) {
	file, err := harness.Overlay("..", filepath.Dir(binary), unguarded, map[string]string{"internal/lock/slow_reaper.go": slowReaper})
	if err != nil {
		return "", err
	}
	to := binary + "-broken"
	return to, build(to, "-overlay", file)
})

// newBroken prepares a server that lacks a guard.
func newBroken(t testing.TB, guard string) *server {
	t.Helper()
	program, err := brokenBinary()
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(t, "")
	s.program, s.env = program, []string{harness.BrokenEnv + "=" + guard, goEnv + "=" + s.path("go")}
	s.errorsExpected = true
	return s
}

// schedules are steps that end in a fault without a guard.
var schedules = []struct {
	guard, slow string // guard: the fault occurs without it; slow: a server with the guard that is only slow, or ""
	steps       func(h *history, one, two *session)
}{
	{"reaper", "slow reaper", func(h *history, one, two *session) {
		h.step(one, "1", "MKD /b_lock")
		h.s.log.Await(h.t, "the reaper has looked", 1)
		h.live(time.Hour)
		h.step(one, "1", "RMD /b_lock")
		h.step(two, "2", "MKD /b_lock")
		h.s.write("go", "")
		h.s.log.Await(h.t, "the reaper has done its work", 1)
		h.step(two, "2", "RMD /b_lock")
	}},
	{"write", "", func(h *history, one, two *session) {
		h.live(time.Hour)
		h.step(one, "1", "MKD /b_lock")
		finish := h.upload(one, "1", 1)
		h.breakLock("/b_lock")
		h.step(two, "2", "MKD /b_lock")
		h.upload(two, "2", 2)()
		finish()
		h.step(two, "2", "RMD /b_lock")
	}},
	{"start", "", func(h *history, one, two *session) {
		h.live(time.Hour)
		h.step(one, "1", "MKD /b_lock")
		h.step(one, "1", "RMD /c_lock")
		h.restart()
		h.step(h.s.session(account), "3", "MKD /b_lock")
	}},
	{"release", "", func(h *history, one, two *session) {
		h.live(time.Hour)
		h.step(one, "1", "MKD /b_lock")
		h.step(two, "2", "RMD /b_lock")
	}},
	{"age", "", func(h *history, one, two *session) {
		h.live(10 * time.Second)
		h.step(one, "1", "MKD /b_lock")
		h.s.log.Await(h.t, `msg="lock ended" lock=/b_lock cause=expire`, 1)
		h.step(two, "2", "MKD /b_lock")
		h.step(one, "1", "RMD /b_lock")
	}},
}

// live sets the age of locks by a reload.
func (h *history) live(age time.Duration) {
	h.t.Helper()
	h.lives = age
	h.s.configure(historyTables(age, false))
	h.s.mustReload()
}

// step sends a command of a session and records the outcome.
func (h *history) step(c *session, owner, line string) {
	h.t.Helper()
	h.Step(c.Session, harness.Op{Owner: owner, Lives: h.lives}, line)
}

// upload begins an upload to /b.tsv. The returned function ends it and records the outcome.
func (h *history) upload(c *session, owner string, value int) (finish func()) {
	h.t.Helper()
	c.Want(200, "TYPE I")
	return h.Upload(c.Session, harness.Op{Owner: owner, Value: value}, "/b_lock")
}

// TestTheCheckerFindsTheFaultOfAMissingGuard runs each schedule with all guards, when it must succeed, and without one, when the checker must find the fault.
func TestTheCheckerFindsTheFaultOfAMissingGuard(t *testing.T) {
	t.Parallel()
	for _, sc := range schedules {
		for guard, found := range map[string]bool{sc.slow: false, sc.guard: true} {
			t.Run(fmt.Sprintf("%s/without %q", sc.guard, guard), func(t *testing.T) {
				t.Parallel()
				h := newHistory(t, newBroken(t, guard), false, time.Second)
				one, two := h.s.session(account), h.s.session(account)
				two.Want(200, "SITE WAIT 10")
				sc.steps(h, one, two)
				h.finish()
				wrong := h.complaint()
				if (wrong != "") != found {
					t.Errorf("found a fault: %v, want %v: %s", wrong != "", found, wrong)
				}
			})
		}
	}
}
