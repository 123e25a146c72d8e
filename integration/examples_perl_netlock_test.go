package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// netlocked gives a program the netlock, and the URL of a lock.
func (s *server) netlocked(t testing.TB, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	cmd.Env = append(cmd.Env, "NETLOCK="+netlock, "LOCK="+s.lockURL("/phone_lock"))
	return cmd
}

// netlock prepares a Perl program of a few lines that uses NetLock.
func (s *server) netlock(t testing.TB, text string) *exec.Cmd {
	t.Helper()
	cmd := s.perl(t, "")
	cmd.Args = []string{"perl", "-w", "-I" + filepath.Join("..", "examples", "perl-netlock"), "-MNetLock", "-e", "use strict; $| = 1; " + text}
	return s.netlocked(t, cmd)
}

// The lock is never too old here; what makes it free is that netlock notices the death of its caller, or the server that of netlock.
const byNetlock = "[files]\ndurable = false\n[[lock]]\nmatch = \"**/phone_lock\"\nmax_age = \"1h\"\n"

func TestPerlEntriesAreAddedUnderOneLock(t *testing.T) {
	t.Parallel()
	harness.Need(t, "perl")
	s := startServer(t, byNetlock)
	s.write("phone.tsv", "zoe\t0\n")
	o := newObserver(t, "NetLock::new NetLock::release")
	add := func(name string) *exec.Cmd {
		return s.netlocked(t, s.perl(t, "perl-netlock/add.pl", name, "+49 "+name))
	}
	victim, _ := o.holding(t, add("victim"))
	want := []string{"zoe"}
	var crowd []*exec.Cmd
	for i := range 8 {
		want = append(want, fmt.Sprint("anna", i))
		crowd = append(crowd, add(want[i+1]))
	}
	for _, r := range o.crowd(t, crowd, func() { o.kill(victim) }) {
		if r.status != 0 || r.out != "" {
			t.Errorf("exit status %d: %s", r.status, r.out)
		}
	}
	o.check(9)
	slices.Sort(want)
	if got := names(s.read("phone.tsv")); !slices.Equal(got, want) {
		t.Errorf("in the list: %q", got)
	}
	if !strings.Contains(s.read("phone.tsv"), "\nanna7\t+49 anna7\n") {
		t.Error("an entry is not as it was added")
	}
}

// TestPerlNetLockClassOfTheArticleRunsNetlockByPerl starts netlock as that class does.
func TestPerlNetLockClassOfTheArticleRunsNetlockByPerl(t *testing.T) {
	t.Parallel()
	harness.Need(t, "perl")
	s := startServer(t, byNetlock)
	class := `$| = 1; open LOCKER, "perl -S netlock $ENV{LOCK} |" or die $!; $line = <LOCKER>; print $line; <STDIN>; close LOCKER; print "closed $?\n"`
	cmd := s.netlocked(t, command(t, "perl", "-e", class))
	scripts, err := filepath.Abs(filepath.Join("..", "examples", "perl-netlock", "bin"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(cmd.Env, "PATH="+scripts+":"+os.Getenv("PATH"))
	p := launch(t, cmd)
	p.says(t, "OK")
	other := s.session("other")
	other.Want(550, "MKD /phone_lock", "held by "+account)
	fmt.Fprintln(p.to)
	p.says(t, "closed 0")
	other.wantFree("/phone_lock", 0)
}

func TestPerlEntryIsNotAddedWhenTheLockWasLost(t *testing.T) {
	t.Parallel()
	harness.Need(t, "perl")
	s := startServer(t, byNetlock)
	s.write("phone.tsv", "zoe\t0\n")
	o := newObserver(t, "NetLock::new NetLock::release")
	cmd := s.netlocked(t, s.perl(t, "perl-netlock/add.pl", "anna", "1"))
	// A netlock that tells us, too, when it has ended.
	dir := t.TempDir()
	script := "#!/bin/sh\n" + netlock + " \"$@\"\nstatus=$?\nexec >&-\necho $status >" + dir + "/ended\nexit $status\n"
	if err := os.WriteFile(dir+"/netlock", []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(cmd.Env, "NETLOCK="+dir+"/netlock")
	p, said := o.holding(t, cmd)
	boss := s.session("boss")
	boss.Breaks("/phone_lock")
	boss.Want(257, "MKD /phone_lock")
	harness.Await(t, "netlock ends", func() bool {
		status, err := os.ReadFile(dir + "/ended")
		return err == nil && string(status) == "79\n"
	})
	p.to.Close()
	<-p.exited
	if p.cmd.ProcessState.ExitCode() == 0 || !strings.Contains(said.String(), "the lock was lost; nothing was changed") {
		t.Errorf("exit status %d: %s", p.cmd.ProcessState.ExitCode(), said.String())
	}
	s.wantFile(t, "phone.tsv", "zoe\t0\n")
	boss.Want(250, "RMD /phone_lock") // nobody else has given it back
}

func TestPerlNetLockIsReleasedByTheEndOfItsObject(t *testing.T) {
	t.Parallel()
	harness.Need(t, "perl")
	s := startServer(t, byNetlock)
	other := s.session("other")
	for _, tc := range []struct{ name, end string }{
		{"undef", `undef $lock; print "released\n"; kill 9, $$`},
		{"release", `print $lock->release ? "released\n" : "lost\n"; print "again\n" if $lock->release || $lock->held; kill 9, $$`},
		{"scope", `{ my $inner = $lock; undef $lock } print "released\n"; kill 9, $$`},
		{"end of the program", `print "released\n"`},
		{"die", `close STDERR; print "released\n"; die`},
		{"with a child that lives on", `my $child = fork; if (!$child) { close STDOUT; close STDERR; sleep 90; exit } undef $lock; print "released\n"; kill 9, $child`},
	} {
		r := finish(t, s.netlock(t, `my $lock = NetLock->new($ENV{LOCK}); print "held\n" if $lock->held; `+tc.end))
		if r.out != "held\nreleased\n" {
			t.Errorf("%s: exit status %d: %q", tc.name, r.status, r.out)
		}
		other.Want(257, "MKD /phone_lock")
		other.Want(250, "RMD /phone_lock")
	}
}

func TestPerlNetLockStaysWithItsOwnerWhenAChildEnds(t *testing.T) {
	t.Parallel()
	harness.Need(t, "perl")
	s := startServer(t, byNetlock)
	r := finish(t, s.netlock(t, `my $lock = NetLock->new($ENV{LOCK}); if (!fork) { undef $lock; exit } wait; print "held\n" if $lock->held;
		if (!fork) { exit } wait; print "still\n" if $lock->held; print "released\n" if $lock->release`))
	if r.status != 0 || r.out != "held\nstill\nreleased\n" {
		t.Errorf("exit status %d: %q", r.status, r.out)
	}
}

func TestPerlNetLockReportsWhyThereIsNoLock(t *testing.T) {
	t.Parallel()
	harness.Need(t, "perl")
	s := startServer(t, byNetlock)
	for url, want := range map[string]string{"unknown": "no lock: .*unknown", "ftp://h/x": "cannot run .*nowhere"} {
		cmd := s.netlock(t, `my $lock = NetLock->new("`+url+`")`)
		if url != "unknown" {
			cmd.Env = append(cmd.Env, "NETLOCK=/nowhere")
		}
		if r := finish(t, cmd); r.status == 0 || !regexp.MustCompile(want).MatchString(r.out) {
			t.Errorf("%s: exit status %d: %s", url, r.status, r.out)
		}
	}
}

// names are the first words of lines.
func names(list string) []string {
	var all []string
	for line := range strings.Lines(list) {
		name, _, _ := strings.Cut(line, "\t")
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}
