package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// perlExample prepares a program of examples/perl-*, with the settings that all examples read.
func perlExample(t testing.TB, address, user, secret, program string, args ...string) *exec.Cmd {
	t.Helper()
	if err := sources(); err != nil {
		t.Fatal(err)
	}
	host, port := split(address)
	cmd := command(t, "perl", append([]string{filepath.Join("..", "examples", program)}, args...)...)
	cmd.Env = append(cmd.Env, "FTP_HOST="+host, "FTP_PORT="+port, "FTP_USER="+user, "FTP_PASSWORD="+secret)
	return cmd
}

// perl prepares a program of examples/perl-* that uses this server.
func (s *server) perl(t testing.TB, program string, args ...string) *exec.Cmd {
	t.Helper()
	return perlExample(t, s.v4, account, password, program, args...)
}

// phoneList is a list that differs in every line from those of others.
func phoneList(who string) string { return strings.Repeat(who+"\t+49 221 4711\n", 20_000) }

// wholeList reports whether all of one list is there.
func wholeList(text string) bool {
	who, _, _ := strings.Cut(text, "\t")
	return text == phoneList(who)
}

const keptAnHour = "[files]\ndurable = false\n[[lock]]\nmatch = \"**/phone_lock\"\nmax_age = \"1h\"\n"

func TestPerlUploadersAndDownloadersTakeTurns(t *testing.T) {
	t.Parallel()
	harness.Need(t, "perl")
	for _, tc := range []struct {
		name, rule string
		free       func(t *testing.T, s *server, clock *clock) // makes the killed holder's lock free, if the rule does not
	}{
		{"released on disconnect", keptAnHour + "on_disconnect = \"release\"\n", nil},
		{"reaped", keptAnHour, func(_ *testing.T, _ *server, clock *clock) { clock.pass(time.Hour) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, clock := startStepped(t, tc.rule)
			s.write("phone.tsv", phoneList("nobody"))
			o, dir := newObserver(t, "Net::FTP::mkdir Net::FTP::rmdir"), t.TempDir()
			list := func(who string) string {
				file := filepath.Join(dir, who)
				writeFile(t, file, []byte(phoneList(who)))
				return file
			}
			victim, _ := o.holding(t, s.perl(t, "perl-netlock/uploader.pl", list("victim")))
			var crowd []*exec.Cmd
			for i := range 4 {
				crowd = append(crowd,
					s.perl(t, "perl-netlock/uploader.pl", list(fmt.Sprint("boss", i)), "0.05"),
					s.perl(t, "perl-netlock/downloader.pl", filepath.Join(dir, fmt.Sprint("got", i)), "0.05"))
			}
			for i, r := range o.crowd(t, crowd, func() {
				o.kill(victim)
				if tc.free != nil {
					tc.free(t, s, clock)
				}
			}) {
				if r.status != 0 || r.out != "" {
					t.Errorf("%v: exit status %d: %s", crowd[i].Args[1:], r.status, r.out)
				}
			}
			o.check(1 + len(crowd))
			for i := range 4 {
				if got, err := os.ReadFile(filepath.Join(dir, fmt.Sprint("got", i))); err != nil || !wholeList(string(got)) {
					t.Errorf("downloaded %d bytes, not one list: %v", len(got), err)
				}
			}
			if got := s.read("phone.tsv"); !wholeList(got) || !strings.HasPrefix(got, "boss") {
				t.Errorf("in the end there are %d bytes, not one of the lists", len(got))
			}
			if s.exists("phone_lock") {
				t.Error("the lock is left over")
			}
		})
	}
}

// netlocked gives a program the netlock, and the URL of a lock.
func (s *server) netlocked(t testing.TB, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	cmd.Env = append(cmd.Env, "NETLOCK="+netlock, "LOCK="+s.lockURL("/phone_lock"))
	return cmd
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
