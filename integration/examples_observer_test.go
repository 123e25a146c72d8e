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

// notes is a file in which processes write when they acquire and release a lock. Function turns reads it, and does not rely on the lock.
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

// open opens the file for one process. Lines that several processes write at once do not mix.
func (n *notes) open() *os.File {
	n.t.Helper()
	f, err := os.OpenFile(n.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { f.Close() })
	return f
}

// lines returns the lines of holders.
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

// kill kills the holder of the lock. It writes the end before, because the stopped holder does no more work.
func (n *notes) kill(p *program) {
	n.t.Helper()
	fmt.Fprintln(n.open(), "end", p.cmd.Process.Pid)
	p.kill()
}

// check reports an error if two processes held the lock at one time, or if the number of holds is not want.
func (n *notes) check(want int) {
	n.t.Helper()
	text := strings.Join(n.all(), "\n")
	if times, wrong := turns(text); len(wrong) > 0 || times != want {
		n.t.Errorf("%d holds, want %d; faults: %q\n%s", times, want, wrong, text)
	}
}

// observer records the calls with which Perl programs acquire and release a lock: see testdata/examples/Observer.pm.
type observer struct {
	*notes
	observes string // the functions that acquire and release the lock
}

func newObserver(t testing.TB, observes string) *observer {
	t.Helper()
	return &observer{newNotes(t), observes}
}

// watch makes a Perl program record its calls.
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

// holding starts a program that stops when it has the lock, and returns then. The buffer has its standard error after its end.
func (o *observer) holding(t testing.TB, cmd *exec.Cmd) (p *program, said *bytes.Buffer) {
	t.Helper()
	said = new(bytes.Buffer)
	cmd.Stderr = said
	p = launch(t, o.watch(t, cmd, "OBSERVE_STOP=1"))
	p.says(t, "holding")
	return p, said
}

// tried returns the number of processes that have asked for the lock.
func (o *observer) tried() int {
	who := make(map[string]bool)
	for _, line := range o.all() {
		if one, ok := strings.CutPrefix(line, "try "); ok {
			who[one] = true
		}
	}
	return len(who)
}

// turns reads the notes of processes that work under one lock: "begin WHO" after it acquires the lock, "end WHO" before it releases the lock, with a
// number if it counts. It returns the number of holds and the faults: two holders at one time, a number that does not follow the last one, or
// another line. It ignores tries and refusals.
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
			wrong = append(wrong, fmt.Sprintf("%s acquires the lock while %s holds it", who, holder))
		case what == "end" && who != holder:
			wrong = append(wrong, fmt.Sprintf("%s releases the lock, and %s held it", who, cmp.Or(holder, "no process")))
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

func TestNotesShowTwoHolders(t *testing.T) {
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
			t.Errorf("%q: %d holds, faults: %q", tc.notes, times, wrong)
		}
	}
}

// crowd runs programs at the same time, to their ends, and returns their results. It calls then when all have asked for the lock and still wait.
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
