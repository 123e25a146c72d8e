package integration

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// notes is a file in which processes that work under a lock note what they do, and in which nobody trusts the lock: see turns.
type notes struct {
	t    testing.TB
	path string
}

func newNotes(t testing.TB) *notes {
	t.Helper()
	n := &notes{t, filepath.Join(t.TempDir(), "notes")}
	n.open().Close()
	return n
}

// open opens it for one process; what several write at the same time does not mix.
func (n *notes) open() *os.File {
	n.t.Helper()
	f, err := os.OpenFile(n.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { f.Close() })
	return f
}

// lines are all that say who has the lock.
func (n *notes) lines() []string {
	return slices.DeleteFunc(n.all(), func(line string) bool { return strings.HasPrefix(line, "sorry ") || strings.HasPrefix(line, "try ") })
}

func (n *notes) all() []string {
	n.t.Helper()
	text, err := os.ReadFile(n.path)
	if err != nil {
		n.t.Fatal(err)
	}
	return strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' })
}

// kill kills one that has the lock. It is noted before: it does nothing any more, so its time may end here.
func (n *notes) kill(p *program) {
	n.t.Helper()
	fmt.Fprintln(n.open(), "end", p.cmd.Process.Pid)
	p.kill()
}

// check complains if two had the lock at one time, or if it was not had so often.
func (n *notes) check(want int) {
	n.t.Helper()
	text := strings.Join(n.all(), "\n")
	if times, wrong := turns(text); len(wrong) > 0 || times != want {
		n.t.Errorf("the lock was had %d times, want %d; wrong: %q\n%s", times, want, wrong, text)
	}
}

// observer sees who has a lock from what Perl programs do: see testdata/examples/Observer.pm.
type observer struct {
	*notes
	observes string // the function that takes the lock and the one that gives it back
}

func newObserver(t testing.TB, observes string) *observer {
	t.Helper()
	return &observer{newNotes(t), observes}
}

// watch has a Perl program watched.
func (o *observer) watch(t testing.TB, cmd *exec.Cmd, more ...string) *exec.Cmd {
	t.Helper()
	here, err := filepath.Abs(filepath.Join("testdata", "examples"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(cmd.Env, "PERL5OPT=-I"+here+" -MObserver", "OBSERVE_LOG="+o.path, "OBSERVE="+o.observes)
	cmd.Env = append(cmd.Env, more...)
	return cmd
}

// holding starts a program that stops when it has the lock, and returns when it has; what it says on its standard error is there when
// it has ended.
func (o *observer) holding(t testing.TB, cmd *exec.Cmd) (p *program, said *bytes.Buffer) {
	t.Helper()
	said = new(bytes.Buffer)
	cmd.Stderr = said
	p = launch(t, o.watch(t, cmd, "OBSERVE_STOP=1"))
	p.says(t, "holding")
	return p, said
}

// tried is how many processes have asked for the lock.
func (o *observer) tried() int {
	who := make(map[string]bool)
	for _, line := range o.all() {
		if one, ok := strings.CutPrefix(line, "try "); ok {
			who[one] = true
		}
	}
	return len(who)
}

// turns reads the notes of processes that work under one lock, and trusts nothing but them: "begin WHO" when one has the lock, "end WHO" when it is
// about to give it back, with a number if it has counted. It returns how often the lock was had, and what is wrong: two had it at one time, a number
// does not follow on the last one, or somebody has noted something else. That one asks for the lock, or goes without it, is not looked at.
func turns(notes string) (times int, wrong []string) {
	holder, last := "", 0
	for line := range strings.Lines(notes) {
		var what, who string
		var number int
		n, _ := fmt.Sscan(line, &what, &who, &number)
		switch {
		case what == "try" || what == "sorry":
			continue
		case what == "begin" && holder != "":
			wrong = append(wrong, fmt.Sprintf("%s has the lock while %s has it", who, holder))
		case what == "end" && who != holder:
			wrong = append(wrong, fmt.Sprintf("%s ends, and %s had the lock", who, cmp.Or(holder, "nobody")))
		case what == "end" && n == 3 && number != last+1:
			wrong = append(wrong, fmt.Sprintf("%s counted %d after %d", who, number, last))
		case what != "begin" && what != "end":
			wrong = append(wrong, line)
		}
		switch what {
		case "begin":
			times++
			holder = who
		case "end":
			holder = ""
			if n == 3 {
				last = number
			}
		}
	}
	if holder != "" {
		wrong = append(wrong, holder+" has not ended")
	}
	return times, wrong
}

func TestTwoHoldersAreSeenInTheirNotes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		notes string
		times int
		wrong int
	}{
		{"", 0, 0},
		{"try 1\nbegin 1\ntry 2\nend 1\nsorry 3\nbegin 2\nend 2\n", 2, 0},
		{"begin 1\nend 1\nbegin 2\nend 2 1\nbegin 3\nend 3 2\n", 3, 0},
		{"begin 1\nbegin 2\nend 1\nend 2\n", 2, 3},
		{"begin 1\nend 1\nend 1\n", 1, 1},
		{"begin 1\n", 1, 1},
		{"begin 1\nend 1 1\nbegin 2\nend 2 1\n", 2, 1},
		{"begin 1\nend 1 1\ncurl: (7) no\n", 1, 1},
	} {
		if times, wrong := turns(tc.notes); times != tc.times || len(wrong) != tc.wrong {
			t.Errorf("%q: %d times, wrong: %q", tc.notes, times, wrong)
		}
	}
}

// crowd runs programs at the same time, to their ends, and returns how they ended. Once all have asked for the lock, while they still wait, it
// calls then.
func (o *observer) crowd(t *testing.T, programs []*exec.Cmd, then func()) []result {
	t.Helper()
	before := o.tried()
	results := make([]result, len(programs))
	var all sync.WaitGroup
	defer all.Wait()
	for i, cmd := range programs {
		o.watch(t, cmd)
		all.Go(func() { results[i] = finish(t, cmd) })
	}
	harness.Await(t, "all ask for the lock", func() bool { return o.tried() >= before+len(programs) })
	then()
	all.Wait()
	return results
}
