package integration

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// adder is a client that adds one to /counter.tsv under /counter_lock and says each step. Its arguments are host, port, user, password and at
// which step it stops itself, so that nothing happens between the step and the signal.
const adder = `
use strict; use warnings; use Net::FTP;
$| = 1; $SIG{PIPE} = 'IGNORE';
my ($host, $port, $user, $password, $when) = @ARGV;
my $ftp = Net::FTP->new($host, Port => $port, Timeout => 50) or die "connect: $@\n";
$ftp->login($user, $password) or die $ftp->message;
$ftp->binary;
sub step {
	return unless $_[0] eq $when;
	print "stopping\n";
	kill 'STOP', $$;
}
sub text { my $text = $ftp->message; $text =~ s/\s+/ /g; $ftp->code . " $text" }
sub store {
	my ($value) = @_;
	my $data = $ftp->stor('/counter.tsv') or return 0;
	my $text = sprintf '%020d', $value;
	$data->write(substr($text, 0, 10), 10);
	step('opened');
	$data->write(substr($text, 10), 10);
	close $data; # the end of the file: what follows is the reply
	return $ftp->response == 2;
}
$ftp->mkdir('/counter_lock') or die text(), "\n";
open my $to, '>', \my $got or die;
$ftp->get('/counter.tsv', $to) or die 'RETR: ', text(), "\n";
step('read');
print store($got + 1) ? "stored\n" : 'refused ' . text() . "\n";
$ftp->quit;
`

// add starts an adder.
func (s *server) add(t testing.TB, when string) *program {
	t.Helper()
	host, port := split(s.v4)
	return launch(t, command(t, "perl", "-e", adder, host, port, account, password, when))
}

// counterAge is the age of the counter's lock.
const counterAge = time.Hour

// counted is a rule for the counter's lock.
func counted(more string) string {
	return fmt.Sprintf("[[lock]]\nmatch = \"/counter_lock\"\nmax_age = %q\nmax_idle = \"0\"\non_disconnect = \"release\"\n%s\n", counterAge, more)
}

const guarded = "protects = [\"/counter.tsv\"]\n"

// The trap that protects is for: a holder that is stopped for longer than the age of its lock goes on, and overwrites
// what the next holder has written.
func TestAStoppedHolderLosesAnUpdateOnlyWithoutProtection(t *testing.T) {
	t.Parallel()
	harness.Need(t, "perl")
	for _, tc := range []struct {
		name, rule, when string
		want             string // what it says of its own increment when it goes on
	}{
		{"not protected", "", "read", "stored"},
		{"protected", guarded, "read", "refused 550 "},
		{"protected, in mid-upload", guarded, "opened", "refused 550 "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, clock := startStepped(t, counted(tc.rule))
			s.write("counter.tsv", "0")
			p := s.add(t, tc.when)
			p.until("stopping")
			clock.pass(counterAge)
			other := s.session("other")
			other.Want(200, "SITE WAIT 30")
			other.Want(257, "MKD /counter_lock")
			other.increment(t)
			other.Want(250, "RMD /counter_lock")
			other.Want(257, "MKD /counter_lock")
			other.increment(t) // or a stopped one's increment of what it has read would not show
			other.Want(250, "RMD /counter_lock")
			if got := trimmed(s.read("counter.tsv")); got != "2" {
				t.Fatalf("the other one has made %q of 0", got)
			}
			p.signal(t, syscall.SIGCONT)
			said := p.until(strings.Fields(tc.want)[0])
			if !strings.HasPrefix(said, tc.want) {
				t.Errorf("the one that was stopped said %q, want %q", said, tc.want)
			}
			if tc.rule != "" && !strings.Contains(said, "/counter_lock") {
				t.Errorf("%q does not name the lock", said)
			}
			want := "2"
			if tc.rule == "" {
				want = "1" // and two updates are lost
			}
			if got := trimmed(s.read("counter.tsv")); got != want {
				t.Errorf("the counter is %q, want %s", got, want)
			}
		})
	}
}

// trimmed is a number without its leading zeros.
func trimmed(text string) string { return strings.TrimLeft(text, "0") }

// increment adds one to the counter, whose lock the session has.
func (s *session) increment(t testing.TB) {
	t.Helper()
	s.Want(200, "TYPE I")
	text, err := s.Retrieve("RETR /counter.tsv")
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Store("/counter.tsv", fmt.Appendf(nil, "%020d", n+1)); err != nil {
		t.Fatal(err)
	}
}
