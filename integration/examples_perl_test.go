package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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

func TestPerlLookupGivesUpAndNamesTheHolder(t *testing.T) {
	t.Parallel()
	harness.Need(t, "perl")
	s := startServer(t, defaults)
	s.write("phone.tsv", "anna\t1\nbob\t2 3\n")
	lookup := func(name string) result { return finish(t, s.perl(t, "perl-netlock/lookup.pl", name, "0.01")) }
	other := s.session("other")
	other.Want(257, "MKD /phone_lock")
	r := lookup("bob")
	if r.status != 75 || !strings.Contains(r.out, "try again later") || !strings.Contains(r.out, "held by other@127.0.0.1") {
		t.Errorf("while it is busy: exit status %d: %s", r.status, r.out)
	}
	if n := strings.Count(r.out, "\n"); n != 1 {
		t.Errorf("it says %d lines", n)
	}
	other.Want(250, "RMD /phone_lock")
	if r := lookup("bob"); r.status != 0 || r.out != "2 3\n" {
		t.Errorf("when it is free: exit status %d: %s", r.status, r.out)
	}
	if r := lookup("b.b"); r.status == 0 || !strings.Contains(r.out, "b.b is not in the list") {
		t.Errorf("of somebody unknown: exit status %d: %s", r.status, r.out)
	}
	other.Want(257, "MKD /phone_lock") // nobody has left it behind
}

func TestPerlDownloaderKeepsTheOldListWhenItIsCutOff(t *testing.T) {
	t.Parallel()
	harness.Need(t, "perl")
	s := startServer(t, defaults)
	s.sparse("phone.tsv", 1<<32)
	mine := filepath.Join(t.TempDir(), "phone.tsv")
	writeFile(t, mine, []byte("old"))
	p := launch(t, s.perl(t, "perl-netlock/downloader.pl", mine))
	harness.Await(t, "bytes arrive", func() bool {
		for _, name := range []string{mine, fmt.Sprintf("%s.%d.part", mine, p.cmd.Process.Pid)} {
			if info, err := os.Stat(name); err == nil && info.Size() > 3 {
				return true
			}
		}
		return false
	})
	s.kill()
	<-p.exited
	if p.cmd.ProcessState.ExitCode() == 0 {
		t.Error("it says that it has the list")
	}
	wantFile(t, mine, "old")
}
