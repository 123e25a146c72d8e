//go:build linux

package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/etcdtest"
	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

// A checker that finds nothing wrong proves something only if it finds what is. So there is an ftplockd that lacks its guards,
// one at a time, as the environment says: its sources are those of the real one with some text replaced when it is built (go
// build -overlay), so that nothing of it is in the real one.
const brokenEnv = "FTPLOCKD_TEST_BROKEN"

// stopEnv names a file that such a server removes before it stops itself, right before it gives an upload its name. It goes on when another
// file, with ".go" behind that name, is there.
const stopEnv = "FTPLOCKD_TEST_STOP"

// replacement puts one text in the place of another, which must be in the file once.
type replacement struct{ file, old, text string }

var replacements = []replacement{
	// A fence that is only that the server is the active one.
	{"internal/lock/etcd/lease.go", "func (s *Store) fenced(fence int64) clientv3.Cmp {\n", `func (s *Store) fenced(fence int64) clientv3.Cmp {
	if broken("fence") {
		return s.mine()
	}
`},
	// A server that believes Campaign when that returns no error, as it does also when the lease was over meanwhile.
	{"internal/lock/etcd/campaign.go", "	defer context.AfterFunc(session.Ctx(), cancel)() // the lease is not renewed any more\n", `
	if !broken("campaign") {
		defer context.AfterFunc(session.Ctx(), cancel)()
	}
`},
	{"internal/lock/etcd/campaign.go", "	if err := s.renew(ctx); err != nil {\n", `
	if broken("campaign") && s.renew(ctx) != nil {
		s.state, s.over = active, make(chan struct{})
		s.epoch = 1
		return s, nil
	}
	if err := s.renew(ctx); err != nil {
`},
	// A change of what locks protect that is made whether the server surely is the active one or not.
	{"internal/lock/write.go", "			if err := s.table.valid(); err != nil {\n", `			if err := s.table.valid(); err != nil && !broken("publish") {
`},
	{"driver/protect.go", "			return c.table().Valid()\n", `			if broken("publish") {
				return nil
			}
			return c.table().Valid()
`},
	// A server that leaves the unfinished uploads of earlier ones where they are.
	{"internal/files/sweep.go", "func (t *Tree) SweepEarlier(ctx context.Context) error {\n", `func (t *Tree) SweepEarlier(ctx context.Context) error {
	if broken("sweep") {
		return nil
	}
`},
	{"internal/files/sweep.go", "func (t *Tree) Sweep(ctx context.Context) error {\n", `func (t *Tree) Sweep(ctx context.Context) error {
	if broken("sweep") {
		return nil
	}
`},
	// Not a guard: it can be stopped where that does most harm.
	{"internal/files/publish.go", "func (u *Upload) Place() error {\n", `func (u *Upload) Place() error {
	if name := os.Getenv("` + stopEnv + `"); name != "" && os.Remove(name) == nil {
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) // which may take a moment
		for os.Remove(name+".go") != nil {
		}
	}
`},
	{"internal/files/publish.go", "import (\n", "import (\n\t\"os\"\n"},
}

// brokenSwitch is a file that each of the packages has beside its own.
const brokenSwitch = `package %s

import "os"

func broken(guard string) bool { return os.Getenv("` + brokenEnv + `") == guard }
`

// brokenBinary is that ftplockd, built when the first test wants it.
var brokenBinary = sync.OnceValues(func() (string, error) {
	root, err := filepath.Abs("../..")
	if err != nil {
		return "", err
	}
	files := make(map[string]string)
	for _, r := range replacements {
		pkg := filepath.Dir(r.file)
		files[pkg+"/broken.go"] = fmt.Sprintf(brokenSwitch, filepath.Base(pkg))
		if files[r.file] == "" {
			text, err := os.ReadFile(filepath.Join(root, r.file))
			if err != nil {
				return "", err
			}
			files[r.file] = string(text)
		}
		if n := strings.Count(files[r.file], r.old); n != 1 {
			return "", fmt.Errorf("%s has %d times %q: say where the guard is now", r.file, n, r.old)
		}
		files[r.file] = strings.Replace(files[r.file], r.old, r.text, 1)
	}
	overlay := make(map[string]string)
	for file, text := range files {
		to := filepath.Join(dir, strings.ReplaceAll(file, "/", "-"))
		overlay[filepath.Join(root, file)] = to
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
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
	return build("ftplockd-broken", "-overlay", file, "-tags", "testclock")
})

// schedules are what leads into a trap, step by step. Each goes well with all guards.
var schedules = []struct {
	guard string
	setup setup
	steps func(h *history)
}{
	// An acquire is on its way to etcd for longer than the server waits; the server makes it by another way, and the lock is given back. Then the
	// first one arrives.
	{"fence", setup{ttl: time.Minute, timeout: 6 * time.Second}, func(h *history) {
		a := h.c.active(h.c.t)
		one := h.session(a, account)
		h.step(one, "1", "RMD /b_lock") // all that is done once is done
		late := a.relays[0]
		late.HoldBack()
		sent := time.Now()
		h.step(one, "1", "MKD /b_lock")
		if took := time.Since(sent); took < 5*time.Second {
			h.c.t.Errorf("what was held back took only %v: another member was asked", took)
		}
		h.step(one, "1", "RMD /b_lock")
		writes := h.c.revision(h.c.t)
		late.HealLate(sent.Add(4 * time.Second))
		await(h.c.t, "what is late has arrived", func() bool { return h.c.revision(h.c.t) > writes+3 }) // or beats alone
		late.Heal()
		h.step(one, "1", "MKD /b_lock")
	}},
	// A standby's lease is over while it does not reach etcd, and the active server dies: another one takes over.
	{"campaign", setup{servers: 3, ttl: 3 * time.Second}, func(h *history) {
		a := h.c.active(h.c.t)
		var b *server // the next in line
		await(h.c.t, "two servers stand by", func() bool {
			line := h.c.line(h.c.t)
			if len(line) < 3 {
				return false
			}
			b = line[1]
			return true
		})
		r := b.process()
		b.toEtcd((*etcdtest.Relay).Cut)
		await(h.c.t, "its lease is over", func() bool { return len(h.c.line(h.c.t)) == 2 })
		h.untilNextTerm(a.kill)
		b.toEtcd((*etcdtest.Relay).Heal)
		await(h.c.t, "it stands by again", func() bool { return len(h.c.line(h.c.t)) == 2 || b.process() != r })
		if b.process() != r || r.listened() {
			h.fail("%s was active without an election key", b.name)
		}
	}},
	// The holder has a session with a server that does not reach etcd any more; the next one has broken its lock and granted it to another client.
	{"publish", setup{ttl: 5 * time.Second}, func(h *history) {
		a := h.c.active(h.c.t)
		one := h.session(a, account)
		h.step(one, "1", "MKD /b_lock")
		h.untilNextTerm(func() { a.toEtcd((*etcdtest.Relay).Cut) })
		b := h.c.others(a)[0]
		h.breakLock(b)
		two := h.session(b, account)
		h.step(two, "2", "MKD /b_lock")
		h.upload(two, "2", 2)()
		h.upload(one, "1", 1)()
	}},
	// The same, with a server that is stopped between its last look and the new name of the file.
	{"sweep", setup{ttl: 5 * time.Second}, func(h *history) {
		a := h.c.active(h.c.t)
		r := a.process()
		one := h.session(a, account)
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
			h.fail("the next server serves, and there is still %s", left)
		}
		b := h.c.others(a)[0]
		h.breakLock(b)
		two := h.session(b, account)
		h.step(two, "2", "MKD /b_lock")
		h.upload(two, "2", 2)()
		h.c.write(h.c.t, "../stop.go", nil)
		a.cont()
		h.exits(r)
	}},
}

// session opens a session with a server, which ends with the test.
func (h *history) session(s *server, name string) *session {
	h.c.t.Helper()
	opened, err := dial(s.address, name, patience)
	if err != nil {
		h.c.t.Fatal(err)
	}
	h.c.t.Cleanup(func() { opened.conn.Close() })
	return opened
}

// step has a session do something and notes what came of it.
func (h *history) step(s *session, owner, line string) {
	h.c.t.Helper()
	verb, name, _ := strings.Cut(line, " ")
	o := h.begin(op{owner: owner, run: h.c.server(s.address).process(), verb: locktest.Verb(verb), name: name})
	r, err := s.say(line)
	switch {
	case err != nil:
		h.c.t.Errorf("%s: %v", line, err)
	case r.code < 300:
		o.token = lock.Token(token(r))
		h.end(o, locktest.Done)
	case r.code >= 500:
		h.end(o, locktest.Refused)
	}
}

// upload begins one to /b.tsv, and returns what ends it and notes what came of it.
func (h *history) upload(s *session, owner string, value int) (finish func()) {
	h.c.t.Helper()
	o := h.begin(op{owner: owner, run: h.c.server(s.address).process(), verb: locktest.STOR, name: "/b_lock", value: value})
	data, err := s.open("STOR /b.tsv")
	var no *refused
	if errors.As(err, &no) {
		return func() { h.end(o, locktest.Refused) }
	}
	if err == nil {
		_, err = data.Write(text(value))
	}
	if err != nil {
		h.c.t.Fatal(err)
	}
	return func() {
		data.Close()
		err := s.done()
		switch {
		case err == nil:
			h.end(o, locktest.Done)
		case errors.As(err, &no) && no.reply.code >= 500:
			h.end(o, locktest.Refused)
		}
	}
}

// breakLock has an administrator take /b_lock away.
func (h *history) breakLock(s *server) {
	h.c.t.Helper()
	boss := h.session(s, "boss")
	found := boss.want(h.c.t, 550, "SITE LOCK BREAK /b_lock", "token ")
	_, after, _ := strings.Cut(found.text, "token ")
	number, _, _ := strings.Cut(after, ":")
	o := h.begin(op{owner: "boss", run: s.process(), verb: locktest.BREAK, name: "/b_lock"})
	boss.want(h.c.t, 200, "SITE LOCK BREAK "+number+" /b_lock")
	h.end(o, locktest.Done)
}

// Each schedule goes well on servers that have their guards, and is found to have gone wrong without. On a machine that is very slow the
// active server may be replaced before it is in the trap, so those without a guard have three tries.
func TestWhatAGuardIsForIsFoundWithoutIt(t *testing.T) {
	t.Parallel()
	for _, sc := range schedules {
		for guard, tries := range map[string]int{"": 1, sc.guard: 3} {
			t.Run(fmt.Sprintf("%s/without %q", sc.guard, guard), func(t *testing.T) {
				t.Parallel()
				wrong := ""
				for try := 0; try < tries && wrong == ""; try++ {
					how := sc.setup
					how.tables, how.binary, how.skewed = historyTables, brokenBinary, true
					how.env = []string{brokenEnv + "=" + guard}
					h := newHistory(start(t, how), 0)
					sc.steps(h)
					h.finish()
					wrong = h.wrong()
				}
				if (wrong != "") != (guard != "") {
					t.Errorf("that something is wrong is %v: %s", wrong != "", wrong)
				} else {
					t.Log(wrong)
				}
			})
		}
	}
}
