package integration

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// adder is a client that adds one to /counter.tsv under /counter_lock, some times, and says each step. Its arguments are
// host, port, user, password, times, and how it is to end at which step of its first round: "stop read",
// "kill sent"; or "" "". It stops or kills itself, so that nothing happens between the step and the signal. A lock that is
// held it waits for, or with an odd process id asks for again and again.
const adder = `
use strict; use warnings; use Net::FTP; use Time::HiRes 'sleep';
$| = 1; $SIG{PIPE} = 'IGNORE';
my ($host, $port, $user, $password, $times, $signal, $when) = @ARGV;
my $ftp = Net::FTP->new($host, Port => $port, Timeout => 50) or die "connect: $@\n";
$ftp->login($user, $password) or die $ftp->message;
$ftp->binary;
$ftp->quot('SITE', 'WAIT', 60) if $$ % 2 == 0;
sub step {
	my ($step, @more) = @_;
	print "$step @more\n";
	return unless $step eq $when;
	$when = '';
	print "stopping\n" if $signal eq 'stop';
	kill $signal eq 'stop' ? 'STOP' : 'KILL', $$;
}
sub text { my $text = $ftp->message; $text =~ s/\s+/ /g; $ftp->code . " $text" }
sub store {
	my ($value) = @_;
	my $data = $ftp->stor('/counter.tsv') or return 0;
	my $text = sprintf '%020d', $value;
	$data->write(substr($text, 0, 10), 10);
	step('opened', $value);
	$data->write(substr($text, 10), 10);
	close $data; # the end of the file: what follows is the reply
	step('sent', $value);
	return $ftp->response == 2;
}
for my $round (1 .. $times) {
	until (defined $ftp->mkdir('/counter_lock')) {
		die text(), "\n" if $ftp->code != 550;
		sleep 0.02;
	}
	step('locked');
	my $got = '';
	open my $to, '>', \$got or die;
	$ftp->get('/counter.tsv', $to) or die 'RETR: ', text(), "\n";
	my $value = $got + 1;
	step('read', $value);
	if (store($value)) { step('stored', $value) } else { print 'refused ', text(), "\n" }
	$ftp->command('RMD', '/counter_lock');
	step('asked', $value);
	print 'lost ', text(), "\n" if $ftp->response != 2;
}
$ftp->quit;
`

// add starts an adder.
func (s *server) add(t testing.TB, times int, signal, when string) *program {
	t.Helper()
	host, port := split(s.v4)
	return launch(t, command(t, "perl", "-e", adder, host, port, account, password, strconv.Itoa(times), signal, when))
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
	need(t, "perl")
	for _, tc := range []struct {
		name, rule, when string
		want             string // what it says of its own increment when it goes on
	}{
		{"not protected", "", "read", "stored 1"},
		{"protected", guarded, "read", "refused 550 "},
		{"protected, in mid-upload", guarded, "opened", "refused 550 "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, clock := startStepped(t, counted(tc.rule))
			s.write("counter.tsv", "0")
			p := s.add(t, 1, "stop", tc.when)
			p.until("stopping")
			clock.pass(counterAge)
			other := s.session("other")
			other.want(200, "SITE WAIT 30")
			other.want(257, "MKD /counter_lock")
			other.increment(t)
			other.want(250, "RMD /counter_lock")
			other.want(257, "MKD /counter_lock")
			other.increment(t) // or a stopped one's increment of what it has read would not show
			other.want(250, "RMD /counter_lock")
			if got := trimmed(s.read("counter.tsv")); got != "2" {
				t.Fatalf("the other one has made %q of 0", got)
			}
			p.goOn(t)
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
	s.want(200, "TYPE I")
	text, err := s.retrieve("RETR /counter.tsv")
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.store("/counter.tsv", fmt.Appendf(nil, "%020d", n+1)); err != nil {
		t.Fatal(err)
	}
}

// until reads what an adder says up to a line that begins with the word, and returns that line; "" at the end.
func (p *program) until(word string) string {
	for {
		line := p.line()
		if line == "" || strings.HasPrefix(line, word) {
			return line
		}
	}
}

// goOn continues a process that is stopped.
func (p *program) goOn(t testing.TB) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Error(err)
	}
}

// ledger is what adders were told of their increments.
type ledger struct {
	clock   *clock
	passing sync.Mutex // held while time passes
	mu      sync.Mutex
	known   map[int]int  // how many were told that this value is in the file
	unsure  map[int]bool // values of clients that died before they were told
	stopped int          // clients that went on after they had lost the lock
	refused int
}

// follow reads all that an adder says, lets it go on when it has been stopped for longer than the age of the
// lock, and notes what it was told.
func (l *ledger) follow(t testing.TB, p *program) {
	open := 0 // the value whose fate the client does not know
	for line := p.line(); line != ""; line = p.line() {
		step, rest, _ := strings.Cut(line, " ")
		value, _ := strconv.Atoi(strings.TrimSpace(rest))
		l.mu.Lock()
		switch step {
		case "opened":
			open = value
		case "stored":
			l.known[value]++
			open = 0
		case "refused", "lost":
			l.refused++
			open = 0
		}
		l.mu.Unlock()
		if step == "stopping" {
			l.pass()
			l.mu.Lock()
			l.stopped++
			l.mu.Unlock()
			p.goOn(t)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if open != 0 {
		l.unsure[open] = true
	}
}

// pass lets the age of the lock pass that a stopped adder has.
func (l *ledger) pass() {
	l.passing.Lock()
	defer l.passing.Unlock()
	l.clock.pass(counterAge)
}

// check compares with the counter. If no update was lost, those that are in it made one each of 1, 2 and so on.
func (l *ledger) check(t testing.TB, counter int) {
	t.Helper()
	for value, times := range l.known {
		if times > 1 {
			t.Errorf("%d clients were told that their update made %d", times, value)
		}
		if value > counter {
			t.Errorf("a client was told that its update made %d, and the counter is %d", value, counter)
		}
	}
	for value := 1; value <= counter; value++ {
		if l.known[value] == 0 && !l.unsure[value] {
			t.Errorf("nobody made the counter %d", value)
		}
	}
}

// fates are how some of the adders end, or are stopped, in their first round.
var fates = [][2]string{
	{"stop", "read"}, {"stop", "opened"}, {"stop", "stored"},
	{"kill", "locked"}, {"kill", "read"}, {"kill", "opened"}, {"kill", "sent"}, {"kill", "stored"}, {"kill", "asked"}, {"kill", "sent"}, {"kill", "asked"},
}

func TestEveryAcknowledgedIncrementIsInTheFileOnce(t *testing.T) {
	t.Parallel()
	need(t, "perl")
	s, clock := startStepped(t, "[files]\ndurable = false\nhang_up = \"100ms\"\n"+counted(guarded)) // a busy machine takes longer than 2 ms to end a process
	s.write("counter.tsv", "0")
	l := &ledger{clock: clock, known: make(map[int]int), unsure: make(map[int]bool)}
	const clients = 32
	for range count(1, 20) {
		l.round(t, s, clients)
	}
	text := s.read("counter.tsv")
	counter, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	l.check(t, counter)
	t.Logf("the counter is %d: %d acknowledged, %d unknown, %d refused, %d clients stopped past the age",
		counter, len(l.known), len(l.unsure), l.refused, l.stopped)
	if len(l.known) < clients || l.stopped < 3 || l.refused < 2 {
		t.Errorf("%d acknowledged, %d stopped, %d refused: too few to prove anything", len(l.known), l.stopped, l.refused)
	}
}

// round runs adders to their end.
func (l *ledger) round(t *testing.T, s *server, clients int) {
	t.Helper()
	var all sync.WaitGroup
	for i := range clients {
		fate := [2]string{"", ""}
		if i%3 == 1 {
			fate = fates[i/3%len(fates)]
		}
		p := s.add(t, 2, fate[0], fate[1])
		all.Go(func() {
			l.follow(t, p)
			<-p.exited
			if status := p.cmd.ProcessState.ExitCode(); fate[0] != "kill" && status != 0 {
				t.Errorf("an adder that was not killed: exit status %d", status)
			}
		})
	}
	all.Wait()
}
