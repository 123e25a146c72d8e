package integration

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// programKind is a kind of program in testdata/programs that uses MKD as a lock. See docs/clients.md.
type programKind struct {
	name   string
	script string
	live   string   // the file that it publishes and that must always be complete
	steps  []string // the steps at which a test may kill it
	gap    bool     // it removes the old live file before it places the new one
	tls    bool
}

var kinds = []programKind{
	{name: "1 deployment action", script: "deployment.sh", live: "site/index", gap: true, // lftp's mirror deletes what it replaces
		steps: []string{"begin", "locked", "marked", "upload", "mirrored", "unmarked", "unlocked"}},
	{name: "2 release publisher", script: "publisher.sh", live: "app-archive.json",
		steps: []string{"begin", "locked", "upload", "uploaded", "compared", "published", "unlocked"}},
	{name: "3 site deployer", script: "site.py", live: "public/index.html", gap: true, tls: true,
		steps: []string{"begin", "locked", "upload", "staged", "between", "swapped", "cleaned", "unlocked"}},
}

// soon makes every lock of these programs end five seconds after the last command of its holder.
const soon = `
[[lock]]
match = "**/*.lock"
max_age = "1h"
max_idle = "5s"
`

// published returns the content that a program publishes.
func published(id string) string { return strings.Repeat(id+"\n", wholeLines) }

// stage is a directory of the server in which programs of one kind work.
type stage struct {
	s       *server
	kind    programKind
	account string
	base    string // on the server
	witness string // a local file with a line for each entry and each exit
	made    string // the directory of their local files
}

// stage creates a stage with an old live file.
func (s *server) stage(t testing.TB, k programKind, name, account string) *stage {
	t.Helper()
	st := &stage{s: s, kind: k, account: account, base: "/data/" + name, made: t.TempDir()}
	st.witness = filepath.Join(st.made, "witness")
	for _, dir := range []string{"tmp", "site"} {
		if err := os.MkdirAll(s.path(st.base+"/"+dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s.write(st.base+"/"+k.live, published("old"))
	return st
}

// program prepares a run, in a process group of its own.
func (st *stage) program(t testing.TB, script, id string, env ...string) *exec.Cmd {
	t.Helper()
	local := filepath.Join(st.made, id)
	if err := os.MkdirAll(local, 0o755); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"index", "composer.lock", "yarn.lock", "style.css"} {
		writeFile(t, filepath.Join(local, name), []byte(published(id)))
	}
	interpreter := "sh"
	if strings.HasSuffix(script, ".py") {
		interpreter = "python3"
	}
	cmd := command(t, interpreter, filepath.Join("testdata", "programs", script))
	cmd.SysProcAttr = tied(true)
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	host, port := split(st.s.v4)
	cmd.Env = append(cmd.Env, "FTP_HOST="+host, "FTP_PORT="+port, "FTP_USER="+st.account, "FTP_PASSWORD="+password,
		"BASE="+st.base, "LOCAL="+local, "ID="+id, "WITNESS="+st.witness, "PAUSE=0.2")
	if st.kind.tls {
		cmd.Env = append(cmd.Env, "FTP_TLS=1")
	}
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

// note appends to the witness's file.
func (st *stage) note(line string) error {
	f, err := os.OpenFile(st.witness, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, line)
	return errors.Join(err, f.Close())
}

// story reads the witness: the last program that entered, the number of entries, and the number of entries while another program was in.
func (st *stage) story() (last string, ins, overlaps int) {
	text, _ := os.ReadFile(st.witness) // there is no file before the first entry
	in := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		switch verb, id, _ := strings.Cut(strings.TrimSpace(line), " "); verb {
		case "in":
			overlaps += len(in)
			in[id], last = true, id
			ins++
		default: // out, dead
			delete(in, id)
		}
	}
	return last, ins, overlaps
}

// torn returns an error if the live file is not complete.
func (st *stage) torn() error {
	text, err := os.ReadFile(st.s.path(st.base + "/" + st.kind.live))
	switch {
	case st.kind.gap && errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !whole(text):
		return fmt.Errorf("%s has %d bytes of %q ...", st.kind.live, len(text), text[:min(len(text), 20)])
	}
	return nil
}

// watch checks the live file until end is called, which returns the first error.
func (st *stage) watch() (end func() error) {
	stop, seen := make(chan struct{}), make(chan error)
	go func() {
		for {
			if err := st.torn(); err != nil {
				seen <- err
				return
			}
			select {
			case <-stop:
				seen <- nil
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return sync.OnceValue(func() error { close(stop); return <-seen })
}

// wantAll checks that one program published all files.
func (st *stage) wantAll(t testing.TB, id string) {
	t.Helper()
	files := []string{st.kind.live}
	if st.kind.script == "deployment.sh" {
		files = []string{"site/index", "site/composer.lock", "site/yarn.lock", "site/style.css"}
	}
	for _, name := range files {
		if got := st.s.read(st.base + "/" + name); got != published(id) {
			t.Errorf("%s is %q ..., want all of it to be %s's", name, got[:min(len(got), 20)], id)
		}
	}
}

// leftOver matches names that no program leaves behind when it succeeds.
var leftOver = regexp.MustCompile(`\.part$|staged-|public-backup-|\.lftp-deployment|\.desktop_updater\.lock|deploy\.lock|^\.lock$|-lock$|\.old$|\.new$`)

// wantNothingLeft checks that there is no file of a lock or of an unfinished upload below the stage.
func (st *stage) wantNothingLeft(t testing.TB) {
	t.Helper()
	err := filepath.WalkDir(st.s.path(st.base), func(path string, _ fs.DirEntry, err error) error {
		if err == nil && leftOver.MatchString(filepath.Base(path)) {
			t.Errorf("left over: %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// takeTurns runs two programs at once, to their ends, and checks the outcome.
func (st *stage) takeTurns(t testing.TB) {
	t.Helper()
	rounds := count(1, 20)
	end := st.watch()
	var running sync.WaitGroup
	for _, who := range []string{"a", "b"} {
		running.Go(func() {
			for i := range rounds {
				id := fmt.Sprint(who, i)
				if r := finish(t, st.program(t, st.kind.script, id)); r.status != 0 {
					t.Errorf("%s: %s: exit status %d\n%s", st.kind.name, id, r.status, r.out)
					return
				}
			}
		})
	}
	running.Wait()
	if err := end(); err != nil {
		t.Errorf("%s: torn: %v", st.kind.name, err)
	}
	last, ins, overlaps := st.story()
	if ins != 2*rounds || overlaps > 0 {
		t.Errorf("%s: %d entered, want %d; %d while another was in", st.kind.name, ins, 2*rounds, overlaps)
	}
	st.wantAll(t, last)
	st.wantNothingLeft(t)
}

// victim starts a program for the test to kill or stop.
func (st *stage) victim(t testing.TB, id string, env ...string) *program {
	t.Helper()
	cmd := st.program(t, st.kind.script, id, env...)
	cmd.Stderr = new(bytes.Buffer)
	return launch(t, cmd)
}

// reach waits until the program is at a step.
func (p *program) reach(step string) error {
	for {
		switch p.until("step ") {
		case "step " + step:
			return nil
		case "":
			<-p.exited
			return fmt.Errorf("it ended before %s: %s", step, p.cmd.Stderr)
		}
	}
}

// death is the moment of a kill: some time after a step. If still is true, the program stops at the step.
type death struct {
	step  string // "": nothing is killed
	still bool
	after time.Duration
}

// kill kills a program while the next one tries to lock, and checks the outcome.
func (st *stage) kill(t testing.TB, d death) {
	t.Helper()
	var env []string
	if d.still {
		env = []string{"STOP_AT=" + d.step}
	}
	where := fmt.Sprintf("%s, killed at %s+%v", st.kind.name, d.step, d.after)
	end := st.watch()
	v := st.victim(t, "victim", env...)
	defer v.kill()
	if err := v.reach(d.step); err != nil {
		t.Errorf("%s: %v", where, err)
		return
	}
	next := st.program(t, st.kind.script, "next")
	over := make(chan result, 1)
	go func() { over <- finish(t, next) }()
	time.Sleep(d.after)
	v.kill()
	if err := st.note("dead victim"); err != nil {
		t.Error(err)
	}
	r := <-over
	if r.status != 0 {
		t.Errorf("%s: the next one: exit status %d\n%s", where, r.status, r.out)
	}
	if err := end(); err != nil {
		t.Errorf("%s: torn: %v", where, err)
	}
	last, _, overlaps := st.story()
	if overlaps > 0 || r.status == 0 && last != "next" {
		t.Errorf("%s: two holders; the last was %s", where, last)
	}
	if r.status == 0 {
		st.wantAll(t, "next")
	}
}

// deaths returns the kills of one kind: half of the steps with directories and half without. With -long it returns all, and more. The first one kills
// nothing.
func (k programKind) deaths(directories bool) (all []death) {
	all = append(all, death{})
	for i, step := range k.steps {
		if *long || (i%2 == 0) == directories {
			all = append(all, death{step, true, 200 * time.Millisecond})
		}
		if strings.HasPrefix(step, "upload") && (*long || !directories) {
			all = append(all, death{step, false, 3 * time.Millisecond})
		}
		for n := range count(0, 4) {
			all = append(all, death{step, false, time.Duration(n*n) * 4 * time.Millisecond})
		}
	}
	return all
}

// TestKilledProgramsLeaveNoStuckLockTornFileOrSecondHolder runs programs that lock by MKD, unchanged, and kills them at their steps.
func TestKilledProgramsLeaveNoStuckLockTornFileOrSecondHolder(t *testing.T) {
	t.Parallel()
	harness.Need(t, "lftp", "curl", "python3", "cmp")
	for _, k := range kinds {
		for _, directories := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/directories=%t", k.name, directories), func(t *testing.T) {
				t.Parallel()
				killAll(t, k, directories)
			})
		}
	}
}

// killAll executes all kills of one kind. Each has an account of its own, since work of the same account and address would keep
// the lock alive.
func killAll(t *testing.T, k programKind, directories bool) {
	deaths := k.deaths(directories)
	var accounts []string
	for i := range deaths {
		accounts = append(accounts, fmt.Sprint("runner-", i))
	}
	s := newServer(t, "")
	s.configure(hangUpLate+fmt.Sprintf("[locks]\ndirectories = %t\n", directories)+tlsTables(t, t.TempDir())+soon, accounts...)
	s.start()
	atOnce := make(chan struct{}, 6)
	var all sync.WaitGroup
	for i, d := range deaths {
		st := s.stage(t, k, fmt.Sprint("place-", i), accounts[i])
		all.Go(func() {
			atOnce <- struct{}{}
			defer func() { <-atOnce }()
			if d.step == "" {
				st.takeTurns(t)
				return
			}
			st.kill(t, d)
		})
	}
	all.Wait()
	c := s.session("boss")
	harness.Await(t, "all locks are free", func() bool {
		r, err := c.Try("SITE LOCKS")
		return err == nil && strings.Contains(r.Text, "no locks are held")
	})
	for _, name := range s.unfinished() {
		if info, err := os.Lstat(name); err == nil && info.Mode().IsRegular() {
			t.Errorf("an upload is left over: %s", name)
		}
	}
}
