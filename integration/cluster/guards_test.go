//go:build linux

package cluster

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/etcdtest"
	"github.com/ftplockd/ftplockd/integration/harness"
)

// stopEnv names a file. If it exists, a server of brokenBinary removes it and stops itself right before it renames an upload. It continues when the
// same name with ".go" exists.
const stopEnv = "FTPLOCKD_TEST_STOP"

// unguarded are the sources of an ftplockd without one of its guards: see harness.Overlay.
var unguarded = []harness.Replacement{
	// The fence is the CreateRevision of the election key.
	{File: "internal/lock/etcd/writer.go", Old: "func (l *Log) fenced() clientv3.Cmp {\n", New: `func (l *Log) fenced() clientv3.Cmp {
	if broken("fence") {
		return l.keyUnchanged()
	}
`},
	// Protected files change without a check of the lease.
	{File: "internal/lock/writing.go", Old: "	if err := t.checkValid(); err != nil {\n", New: `	if err := t.checkValid(); err != nil && !broken("publish") {
`},
	{File: "driver/protect.go", Old: "			return c.table().Valid()\n", New: `			if broken("publish") {
				return nil
			}
			return c.table().Valid()
`},
	// The unfinished uploads of earlier servers stay.
	{File: "internal/files/sweep.go", Old: "func (t *Tree) SweepEarlier(ctx context.Context) error {\n", New: `func (t *Tree) SweepEarlier(ctx context.Context) error {
	if broken("sweep") {
		return nil
	}
`},
	{File: "internal/files/sweep.go", Old: "func (t *Tree) Sweep(ctx context.Context) error {\n", New: `func (t *Tree) Sweep(ctx context.Context) error {
	if broken("sweep") {
		return nil
	}
`},
	// Not a guard: the server stops itself at the most harmful place.
	{File: "internal/files/publish.go", Old: "func (u *Upload) Place() error {\n", New: `func (u *Upload) Place() error {
	if name := os.Getenv("` + stopEnv + `"); name != "" && os.Remove(name) == nil {
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) // it may take a moment
		for os.Remove(name+".go") != nil {
		}
	}
`},
	{File: "internal/files/publish.go", Old: "import (\n", New: "import (\n\t\"os\"\n"},
}

// brokenBinary builds that ftplockd once.
var brokenBinary = sync.OnceValues(func() (string, error) {
	file, err := harness.Overlay("../..", dir, unguarded, nil)
	if err != nil {
		return "", err
	}
	return build("ftplockd-broken", "-overlay", file, "-tags", "testclock")
})

// schedules lead into a trap, step by step. With all guards each one ends well.
var schedules = []struct {
	guard string
	setup setup
	steps func(h *history)
}{
	// The transaction of a grant takes longer than the server waits. The server sends it again to another member, and the lock is released.
	// Then the first transaction arrives.
	{"fence", setup{members: 3, ttl: time.Minute, timeout: 6 * time.Second}, func(h *history) {
		a := h.c.active(h.c.t)
		one := h.session(a, "1", account)
		h.step(one, "1", "RMD /b_lock") // everything that happens once has happened
		late := a.relays[0]
		late.HoldBack()
		sent := time.Now()
		h.step(one, "1", "MKD /b_lock")
		if took := time.Since(sent); took < 5*time.Second {
			h.c.t.Errorf("the MKD took only %v: its transaction was not held back", took)
		}
		h.step(one, "1", "RMD /b_lock")
		writes := h.c.revision(h.c.t)
		late.HealLate(sent.Add(4 * time.Second))
		harness.Await(h.c.t, "the late transaction has arrived", func() bool { return h.c.revision(h.c.t) > writes+3 }) // or beats alone
		late.Heal()
		h.step(one, "1", "MKD /b_lock")
	}},
	// The holder has a session with a server that does not reach etcd any more. The next server has broken its lock and granted it to another client.
	{"publish", setup{ttl: 5 * time.Second}, func(h *history) {
		a := h.c.active(h.c.t)
		one := h.session(a, "1", account)
		h.step(one, "1", "MKD /b_lock")
		h.untilNextTerm(func() { a.toEtcd((*etcdtest.Relay).Cut) })
		b := h.c.others(a)[0]
		h.breakLock(b)
		two := h.session(b, "2", account)
		h.step(two, "2", "MKD /b_lock")
		h.upload(two, "2", 2)()
		h.upload(one, "1", 1)()
	}},
	// The same, with a server that stops between its last check and the rename of the upload.
	{"sweep", setup{ttl: 5 * time.Second}, func(h *history) {
		a := h.c.active(h.c.t)
		r := a.process()
		one := h.session(a, "1", account)
		h.step(one, "1", "MKD /b_lock")
		h.c.write(h.c.t, "../stop", nil)
		ended := make(chan struct{})
		finish := h.upload(one, "1", 1)
		go func() {
			defer close(ended)
			finish()
		}()
		defer func() { <-ended }()
		h.untilNextTerm(func() {})
		if left, _ := filepath.Glob(filepath.Join(h.c.root, ".ftplockd-*")); len(left) > 0 {
			h.Fail("the next server serves, but %s is left", left)
		}
		b := h.c.others(a)[0]
		h.breakLock(b)
		two := h.session(b, "2", account)
		h.step(two, "2", "MKD /b_lock")
		h.upload(two, "2", 2)()
		h.c.write(h.c.t, "../stop.go", nil)
		a.cont()
		h.exits(r)
	}},
}

// session opens a session of an owner with a server. It ends with the test.
func (h *history) session(s *server, owner, name string) *harness.Session {
	h.c.t.Helper()
	opened, err := harness.LoginAny([]string{s.address}, name, 0)
	if err != nil {
		h.c.t.Fatal(err)
	}
	h.c.t.Cleanup(func() { opened.Conn.Close() })
	opened.T = h.c.t
	h.sentTo(owner, s.process())
	return opened
}

// step sends a line and records the reply.
func (h *history) step(s *harness.Session, owner, line string) {
	h.c.t.Helper()
	h.Step(s, harness.Op{Owner: owner}, line)
}

// upload begins an upload to /b.tsv. finish ends it and records the reply.
func (h *history) upload(s *harness.Session, owner string, value int) (finish func()) {
	h.c.t.Helper()
	return h.Upload(s, harness.Op{Owner: owner, Value: value}, "/b_lock")
}

// breakLock breaks /b_lock as an administrator.
func (h *history) breakLock(s *server) {
	h.c.t.Helper()
	h.Break(h.session(s, "boss", "boss"), harness.Op{Owner: "boss"}, "/b_lock")
}

// The checkers find nothing wrong in a schedule on servers with all guards, and find the fault on servers without one. On a very slow machine the
// active server may be replaced before the trap, so servers without a guard have three tries.
func TestTheCheckerFindsTheFaultOfAMissingGuard(t *testing.T) {
	t.Parallel()
	for _, sc := range schedules {
		for guard, tries := range map[string]int{"": 1, sc.guard: 3} {
			t.Run(fmt.Sprintf("%s/without %q", sc.guard, guard), func(t *testing.T) {
				t.Parallel()
				wrong := ""
				for try := 0; try < tries && wrong == ""; try++ {
					how := sc.setup
					how.tables, how.binary, how.skewed = historyTables, brokenBinary, true
					how.env = []string{harness.BrokenEnv + "=" + guard}
					h := newHistory(start(t, how), 0)
					sc.steps(h)
					h.finish()
					wrong = h.wrong()
				}
				if (wrong != "") != (guard != "") {
					t.Errorf("the checkers report %q", wrong)
				} else {
					t.Log(wrong)
				}
			})
		}
	}
}
