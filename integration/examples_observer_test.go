package integration

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// observer sees who has a lock from what the processes do, not from what the server says.
type observer struct {
	log      string // its notes, a line each: see testdata/examples/Observer.pm
	observes string // the function that takes the lock and the one that gives it back
}

func newObserver(t testing.TB, observes string) *observer {
	t.Helper()
	o := &observer{log: filepath.Join(t.TempDir(), "notes"), observes: observes}
	if err := os.WriteFile(o.log, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return o
}

// watch has a Perl program watched.
func (o *observer) watch(t testing.TB, cmd *exec.Cmd, more ...string) *exec.Cmd {
	t.Helper()
	here, err := filepath.Abs(filepath.Join("testdata", "examples"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(cmd.Env, "PERL5OPT=-I"+here+" -MObserver", "OBSERVE_LOG="+o.log, "OBSERVE="+o.observes)
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
	if line := p.line(); line != "holding" {
		t.Fatalf("it says %q and %q", line, said.String())
	}
	return p, said
}

// kill kills a program that holds the lock, and notes it: from then on somebody else may have it.
func (o *observer) kill(t testing.TB, p *program) {
	t.Helper()
	log, err := os.OpenFile(o.log, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = fmt.Fprintf(log, "end %d\n", p.cmd.Process.Pid) // it does nothing any more, so its time may end here
	}
	if err != nil {
		t.Fatal(err)
	}
	log.Close()
	p.kill()
}

func (o *observer) notes(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(o.log)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// tried is how many processes have asked for the lock.
func (o *observer) tried(t testing.TB) int {
	who := make(map[string]bool)
	for line := range strings.Lines(o.notes(t)) {
		if who1, ok := strings.CutPrefix(line, "try "); ok {
			who[who1] = true
		}
	}
	return len(who)
}

// check complains if two had the lock at one time, and returns how often it was had.
func (o *observer) check(t testing.TB) int {
	t.Helper()
	times, wrong := turns(o.notes(t))
	for _, w := range wrong {
		t.Error(w)
	}
	return times
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

// crowd runs programs at the same time, to their ends, which must come within 50 seconds, and returns how they ended. Once all have asked
// for the lock, while they still wait, it calls then.
func (o *observer) crowd(t *testing.T, programs []*exec.Cmd, then func()) []result {
	t.Helper()
	before := o.tried(t)
	results := make([]result, len(programs))
	var all sync.WaitGroup
	for i, cmd := range programs {
		o.watch(t, cmd)
		all.Go(func() { results[i] = finish(t, cmd) })
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	await(t, "all ask for the lock", func() bool { return o.tried(t) >= before+len(programs) })
	then()
	select {
	case <-done:
	case <-time.After(50 * time.Second):
		t.Error("somebody waits for ever")
		<-done // after a minute, see command
	}
	return results
}
