package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

// A checker that finds nothing wrong proves something only if it finds what is. So there is an ftplockd that lacks its
// guards, one at a time, as the environment says: its sources are those of the real one with the text below put in when
// it is built (go build -overlay), so that nothing of it is in the real one.
const brokenEnv = "FTPLOCKD_TEST_BROKEN"

// goEnv names a file for which a slow reaper waits.
const goEnv = "FTPLOCKD_TEST_GO"

// insertion puts text behind a line that must be in the file once.
type insertion struct{ file, behind, text string }

var insertions = []insertion{
	// A release that ends whatever holds the name.
	{"internal/lock/release.go", "func (s *Session) releasableLocked(n Name, e *node) (*held, error) {\n", `
	if broken("release") && e != nil && len(e.holds) > 0 {
		return e.holds[0], nil
	}
`},
	// A reaper that looks which name is over, and then ends what has the name. "slow" is one that takes its time only: both wait
	// between the look and what follows, once, until they are told to go on.
	{"internal/lock/expire.go", "func (t *Table) expireOne(ctx context.Context, n Name, wait bool) (bool, error) {\n", `
	if broken("reaper") || broken("slow reaper") {
		t.mu.Lock()
		over := false
		if e := t.nodes[n]; e != nil {
			h, _ := t.overLocked(e, t.clock.Now().Boot)
			over = h != nil
		}
		t.mu.Unlock()
		if over {
			defer reaperWaits()()
		}
		if over && broken("reaper") {
			status, _ := t.Get(n)
			for _, h := range status.Holds {
				_ = t.endToken(ctx, n, h.Token, reason{cause: CauseExpire}, nil)
			}
			return false, nil
		}
	}
`},
	// A write that is checked when it begins only.
	{"internal/lock/write.go", "func (s *Session) Write(ctx context.Context, writes []Write, fn func([]Title) error) error {\n", `
	if broken("write") {
		return fn(make([]Title, len(writes)))
	}
`},
	// An age that is shorter than the rule's.
	{"internal/lock/agenda.go", "		at = later(h.Renewed.Boot, h.Rule.MaxAge)\n", `
		if broken("age") {
			at -= h.Rule.MaxAge / 2
		}
`},
	// A start that forgets what was held.
	{"internal/lock/journal/rotate.go", "	s.generation++\n", `
	if os.Getenv("` + brokenEnv + `") == "start" {
		clear(s.records)
	}
`},
}

// brokenSwitch is a file that the built lock package has beside its own.
const brokenSwitch = `package lock

import (
	"os"
	"sync/atomic"
	"time"
)

func broken(guard string) bool { return os.Getenv("` + brokenEnv + `") == guard }

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
	root, err := filepath.Abs("..")
	if err != nil {
		return "", err
	}
	dir := filepath.Dir(binary)
	overlay := make(map[string]string)
	add := func(file, text string) error {
		to := filepath.Join(dir, strings.ReplaceAll(file, "/", "-"))
		overlay[filepath.Join(root, file)] = to
		return os.WriteFile(to, []byte(text), 0o600)
	}
	if err := add("internal/lock/broken.go", brokenSwitch); err != nil {
		return "", err
	}
	for _, i := range insertions {
		text, err := os.ReadFile(filepath.Join(root, i.file))
		if err != nil {
			return "", err
		}
		if n := strings.Count(string(text), i.behind); n != 1 {
			return "", fmt.Errorf("%s has %d times %q: say where the guard is now", i.file, n, i.behind)
		}
		if err := add(i.file, strings.Replace(string(text), i.behind, i.behind+i.text, 1)); err != nil {
			return "", err
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, list, 0o600); err != nil {
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
	s.program, s.env = program, []string{brokenEnv + "=" + guard, goEnv + "=" + s.path("go")}
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
		h.s.log.await(h.t, "the reaper has looked", 1)
		h.live(time.Hour)
		h.step(one, "1", "RMD /b_lock")
		h.step(two, "2", "MKD /b_lock")
		h.s.write("go", "")
		h.s.log.await(h.t, "the reaper has done its work", 1)
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
		h.s.log.await(h.t, `msg="lock ended" lock=/b_lock cause=expire`, 1)
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
	verb, name, _ := strings.Cut(line, " ")
	o := &op{owner: owner, lives: h.lives, begin: note{Verb: locktest.Verb(verb), Name: name, At: now()}}
	r, err := c.try(line)
	if err != nil {
		h.t.Fatal(err)
	}
	o.end = note{Ended: true, At: now(), Result: locktest.Refused, Token: lock.Token(token(r))}
	if r.code < 300 {
		o.end.Result = locktest.Done
	}
	h.ops = append(h.ops, o)
}

// upload begins one to /b.tsv, and returns what ends it and notes what came of it.
func (h *history) upload(c *session, owner string, value int) (finish func()) {
	h.t.Helper()
	o := &op{owner: owner, begin: note{Verb: locktest.STOR, Name: "/b_lock", Value: value, At: now()}}
	c.want(200, "TYPE I")
	data, err := c.open("STOR /b.tsv")
	if err != nil {
		h.t.Fatal(err)
	}
	if _, err := data.Write(historyText(value)); err != nil {
		h.t.Fatal(err)
	}
	return func() {
		data.Close()
		o.end = note{Result: locktest.Done}
		if c.done() != nil {
			o.end.Result = locktest.Refused
		}
		o.end.Ended, o.end.At = true, now()
		h.ops = append(h.ops, o)
	}
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
				two.want(200, "SITE WAIT 10")
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
