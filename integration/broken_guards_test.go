package integration

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// goEnv names a file for which a slow reaper waits.
const goEnv = "FTPLOCKD_TEST_GO"

// behind puts text behind a line of a file.
func behind(file, line, text string) harness.Replacement {
	return harness.Replacement{File: file, Old: line, New: line + text}
}

// unguarded changes the sources to those of an ftplockd that lacks one guard, which the environment names: see harness.Overlay.
var unguarded = []harness.Replacement{
	// A release that ends whatever holds the name.
	behind("internal/lock/standing.go", "func (st *State) releasable(s *session, name Name) (*hold, error) {\n", `
	if broken("release") && st.held(name) {
		return st.nodes[name].holds[0], nil
	}
`),
	// A reaper that looks which name is over, and then ends what has the name. "slow" is one that takes its time only: both wait
	// between the look and what follows, once, until they are told to go on.
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
	// A write that is checked when it begins only.
	behind("internal/lock/writing.go", "func (s *Session) Write(ctx context.Context, writes []Write, fn func([]Title) error) error {\n", `
	if broken("write") {
		return fn(make([]Title, len(writes)))
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
	// A start that forgets what was held.
	behind("internal/lock/table.go", "	t.start, t.st.last = loaded.Start, loaded.Last\n", `
	if broken("start") {
		loaded.Holds = nil
	}
`),
}

// slowReaper is a file that the built lock package has beside its own.
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

// brokenBinary is that ftplockd, built when the first test wants it.
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

// schedules are what leads into a trap, step by step.
var schedules = []struct {
	guard, slow string // without which it is walked into, and a server that is only slow there, ""
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

// live has locks from now on live so long.
func (h *history) live(age time.Duration) {
	h.t.Helper()
	h.lives = age
	h.s.configure(historyTables(age, false))
	h.s.mustReload()
}

// step has a session do something and notes what came of it.
func (h *history) step(c *session, owner, line string) {
	h.t.Helper()
	h.Step(c.Session, harness.Op{Owner: owner, Lives: h.lives}, line)
}

// upload begins one to /b.tsv, and returns what ends it and notes what came of it.
func (h *history) upload(c *session, owner string, value int) (finish func()) {
	h.t.Helper()
	c.Want(200, "TYPE I")
	return h.Upload(c.Session, harness.Op{Owner: owner, Value: value}, "/b_lock")
}

// Each schedule goes well on a server that has its guards, however slow, and is found to have gone wrong without.
func TestWhatAGuardIsForIsFoundWithoutIt(t *testing.T) {
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
					t.Errorf("that something is wrong is %v, want %v: %s", wrong != "", found, wrong)
				}
			})
		}
	}
}
