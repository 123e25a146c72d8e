package integration

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// locker prepares a Perl program of a few lines that has a Locker in $locker.
func (s *server) locker(t testing.TB, text string) *exec.Cmd {
	t.Helper()
	cmd := s.perl(t, "")
	cmd.Args = []string{"perl", "-w", "-I" + filepath.Join("..", "examples", "perl-locker"), "-MLocker", "-e",
		"use strict; $| = 1; my $locker = Locker->new; " + text}
	return cmd
}

// Most of what Locker does is told in Perl.
func TestPerlLockerWorksAsDocumented(t *testing.T) {
	t.Parallel()
	harness.Need(t, "perl")
	s := startServer(t, "[[lock]]\nmatch = \"/locks/**\"\nmax_age = \"1h\"\n[[lock]]\nmatch = \"/ours/**\"\nmax_age = \"1h\"\n")
	cmd := s.perl(t, "")
	cmd.Args = []string{"perl", "-w", "-I" + filepath.Join("..", "examples", "perl-locker"), filepath.Join("testdata", "examples", "locker.t")}
	r := finish(t, cmd)
	if r.status != 0 {
		t.Errorf("exit status %d\n%s", r.status, r.out)
	}
	if n := strings.Count(r.out, "\nok "); n < 30 {
		t.Errorf("only %d checks:\n%s", n, r.out)
	}
	s.session("other").Want(211, "SITE LOCKS", "no locks are held")
}

func TestPerlLockerReleasesLocksAtEveryEndOfItsProgram(t *testing.T) {
	t.Parallel()
	harness.Need(t, "perl")
	s := startServer(t, "[[lock]]\nmatch = \"/locks/**\"\nmax_age = \"1h\"\n")
	for name, end := range map[string]string{
		"last line": ``, "exit": `exit 0`, "die": `close STDERR; die "for some reason\n"`,
		"scope": `undef $lock; kill 9, $$`, "unlock": `$lock->unlock; kill 9, $$`,
		"circle of references": `$lock->locker->{lock} = $lock; exit 0`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lock := strings.ReplaceAll(name, " ", "-")
			r := finish(t, s.locker(t, `my $lock = $locker->lock("`+lock+`"); print "locked\n"; `+end))
			if r.out != "locked\n" {
				t.Error(r.out)
			}
			s.session("other").Want(257, "MKD /locks/"+lock)
		})
	}
}

func TestPerlLockerPurgeReleasesLocksOfDeadHoldersOnly(t *testing.T) {
	t.Parallel()
	harness.Need(t, "perl")
	s := startServer(t, "[[lock]]\nmatch = \"/locks/**\"\nmax_age = \"1h\"\n")
	hold := func(name string) *program {
		// It loses its connection: the server would give the lock to another session of the account.
		p := launch(t, s.locker(t, `my $lock = $locker->lock("`+name+`"); close $locker->{ftp}; print "locked\n"; readline STDIN`))
		p.says(t, "locked")
		return p
	}
	alive, dead := hold("alive"), hold("dead")
	dead.kill()
	s.session("other").Want(257, "MKD /locks/foreign")
	// Of another machine, or so its note says: who knows whether it lives.
	far := s.session(account)
	far.Want(257, "MKD /locks/far")
	if err := far.Store("/locks/far/locked_by", fmt.Appendf(nil, `{"host":"elsewhere","pid":%d,"guid":"1"}`, dead.cmd.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	far.Want(221, "QUIT")
	list := func(args ...string) []string {
		r := finish(t, s.perl(t, "perl-locker/locks.pl", args...))
		lines := slices.Sorted(strings.Lines(r.out))
		if r.status != 0 {
			t.Error(r.out)
		}
		return lines
	}
	before := list()
	if len(before) != 4 || !strings.HasPrefix(before[0], fmt.Sprintf("alive\tprocess %d on ", alive.cmd.Process.Pid)) ||
		!strings.HasPrefix(before[2], fmt.Sprintf("far\tprocess %d on elsewhere", dead.cmd.Process.Pid)) || before[3] != "foreign\tanother program\n" {
		t.Errorf("listed: %q", before)
	}
	var after []string
	harness.Await(t, "the dead one's lock is purged", func() bool { // as soon as the server knows that its session has ended
		after = list("--purge")
		return slices.Contains(after, "purged dead\n")
	})
	if len(after) != 4 || after[3] != "purged dead\n" || after[0] != before[0] {
		t.Errorf("listed after the purge: %q", after)
	}
	alive.to.Close()
	<-alive.exited
	if status := alive.cmd.ProcessState.ExitCode(); status != 0 {
		t.Errorf("the one that lives ends with %d", status)
	}
}

func TestPerlNumbersAreGivenOutOnceEach(t *testing.T) {
	t.Parallel()
	harness.Need(t, "perl")
	s := startServer(t, "[files]\ndurable = false\n[[lock]]\nmatch = \"/locks/**\"\nmax_age = \"1h\"\non_disconnect = \"release\"\n")
	o := newObserver(t, "Locker::lock Locker::Lock::unlock")
	number := func() *exec.Cmd { return s.perl(t, "perl-locker/number.pl", "invoice") }
	var got []int
	take := func(results ...result) {
		for _, r := range results {
			n, err := strconv.Atoi(strings.TrimSuffix(r.out, "\n"))
			if r.status != 0 || err != nil {
				t.Errorf("exit status %d: %s", r.status, r.out)
			}
			got = append(got, n)
		}
	}
	take(finish(t, o.watch(t, number())))
	victim, _ := o.holding(t, number())
	var crowd []*exec.Cmd
	for range 8 {
		crowd = append(crowd, number())
	}
	take(o.crowd(t, crowd, func() { o.kill(victim) })...)
	o.check(10)
	slices.Sort(got)
	if fmt.Sprint(got) != "[1 2 3 4 5 6 7 8 9]" { // the victim was killed before it wrote
		t.Errorf("given out: %v", got)
	}
	if last := s.read("invoice.last"); last != "9\n" {
		t.Errorf("the last number is %q", last)
	}
	s.session("other").Want(211, "SITE LOCKS", "no locks are held")
}
