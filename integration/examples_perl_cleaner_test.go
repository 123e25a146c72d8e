package integration

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

func TestPerlCleanerRemovesOldLocksOfTheDeadOnly(t *testing.T) {
	t.Parallel()
	harness.Need(t, "perl")
	s, clock := startStepped(t, "[[lock]]\nmatch = \"**/*_lock\"\nmax_age = \"1h\"\n")
	s.write("data/full_lock.d/file", "x")
	clock.step(-10*time.Minute, 0) // what MDTM says of the locks that are taken now goes by this clock
	c := s.session(account)
	for _, name := range []string{"/data/dead_lock", "/data/live_lock", "/data/plain"} {
		c.Want(257, "MKD "+name)
	}
	ended := s.session(account)
	ended.Want(250, "RMD /data/plain")
	ended.Want(257, "MKD /data/plain")
	c.Want(250, "RMD /data/dead_lock")
	ended.Want(257, "MKD /data/dead_lock")
	ended.Conn.Close()
	clock.step(10*time.Minute, 0)
	young := s.session(account)
	young.Want(257, "MKD /data/young_lock")
	young.Conn.Close()

	clean := func(args ...string) string {
		t.Helper()
		r := finish(t, s.perl(t, "perl-netlock/cleaner.pl", args...))
		if r.status != 0 {
			t.Errorf("exit status %d", r.status)
		}
		return strings.Join(slices.Sorted(strings.Lines(r.out)), "")
	}
	if out := clean("-n", "6m", "/data"); out != "would remove /data/dead_lock\nwould remove /data/live_lock\n" {
		t.Errorf("with -n: %s", out)
	}
	out := clean("6m", "/data/")
	if want := "cannot remove /data/live_lock: /data/live_lock: not yours: held by " + account; !strings.HasPrefix(out, want) {
		t.Errorf("it says %q, want first %q", out, want)
	}
	if !strings.HasSuffix(out, "\nremoved /data/dead_lock\n") || strings.Count(out, "\n") != 2 {
		t.Errorf("it says %q", out)
	}
	if left := dirNames(t, s.path("data")); !slices.Equal(left, []string{"full_lock.d", "live_lock", "plain", "young_lock"}) {
		t.Errorf("left: %q", left)
	}
	if out := clean("1h", "/data", "/"); out != "" {
		t.Errorf("with an age of an hour: %s", out)
	}
	if r := finish(t, s.perl(t, "perl-netlock/cleaner.pl", "6", "/data")); r.status == 0 || !strings.HasPrefix(r.out, "usage: ") {
		t.Errorf("an age without a unit: %d %s", r.status, r.out)
	}
}

func dirNames(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// listed is a server that knows nothing but listings, as some old ones do, with the times that it is told.
type listed struct {
	now  string            // the time of a directory that is made just now, as LIST has it
	dirs map[string]string // names and times
	mdtm string            // what MDTM says of every directory but phone_lock; "": nothing
}

// serve answers one session after the other until the listener is closed.
func (l *listed) serve(t *testing.T) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			l.session(conn)
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		<-done
	})
	return listener.Addr().String()
}

func (l *listed) session(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	say := func(line string) { fmt.Fprint(conn, line+"\r\n") }
	var data net.Listener
	say("220 hello")
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		verb, rest, _ := strings.Cut(lines.Text(), " ")
		_, name := filepath.Split(rest)
		switch verb {
		case "USER", "PASS", "TYPE":
			say("230 ok")
		case "MKD":
			l.dirs[name] = l.now
			say(`257 "` + rest + `" created`)
		case "RMD":
			delete(l.dirs, name)
			say("250 removed")
		case "MDTM":
			if l.mdtm == "" || name == "phone_lock" {
				say("550 not a plain file")
				continue
			}
			say("213 " + l.mdtm)
		case "PASV":
			var err error
			if data, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
				say("425 " + err.Error())
				continue
			}
			port := data.Addr().(*net.TCPAddr).Port
			say(fmt.Sprintf("227 (127,0,0,1,%d,%d)", port/256, port%256))
		case "LIST":
			l.list(say, data)
		case "QUIT":
			say("221 bye")
			return
		default:
			say("500 what?")
		}
	}
}

func (l *listed) list(say func(string), data net.Listener) {
	defer data.Close()
	say("150 coming")
	to, err := data.Accept()
	if err != nil {
		return
	}
	for name, at := range l.dirs {
		fmt.Fprintf(to, "drwxr-xr-x    2 ftp      ftp          4096 %s %s\r\n", at, name)
	}
	to.Close()
	say("226 done")
}

// cleaned checks what the cleaner says of its root, for an age of six minutes.
func (l *listed) cleaned(t *testing.T, want string) {
	t.Helper()
	cmd := perlExample(t, l.serve(t), account, password, "perl-netlock/cleaner.pl", "6m", "/")
	cmd.Env = append(cmd.Env, "FTP_PASSIVE=1") // for Net::FTP, which would take its word from the machine's libnet.cfg
	if r := finish(t, cmd); r.status != 0 || r.out != want {
		t.Errorf("exit status %d: %q, want %q", r.status, r.out, want)
	}
}

func TestPerlCleanerIsSureOfTheAgeOfWhatItRemoves(t *testing.T) {
	t.Parallel()
	harness.Need(t, "perl")
	today := time.Now().UTC()
	for _, tc := range []struct {
		name, now, then string // of phone_lock
		removed         bool
	}{
		{"old enough", "Mar 03 12:07", "Mar 03 12:00", true},
		{"maybe some seconds less", "Mar 03 12:06", "Mar 03 12:00", false},
		{"younger", "Mar 03 12:05", "Mar 03 12:00", false},
		{"made later than now", "Mar 03 12:00", "Mar 03 12:07", false},
		{"the day before", "Mar 03 00:06", "Mar 02 23:58", true},
		{"an hour was left out meanwhile, perhaps", "Mar 29 03:00", "Mar 29 01:59", false},
		{"more than an hour and the age", "Mar 29 03:06", "Mar 29 01:59", true},
		{"an hour came twice", "Oct 25 02:10", "Oct 25 02:50", false},
		{"last year", "Jan 01 00:10", "Dec 31 23:58", true},
		{"last year, younger", "Jan 01 00:03", "Dec 31 23:58", false},
		{"long ago", "Mar 03 12:07", "Mar 03  2001", true},
		{"today, with a year", today.Format("Jan 02 15:04"), today.Format("Jan 02  2006"), false},
		{"what is no time", "Mar 03 12:07", "Foo 03 12:00", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			l := &listed{now: tc.now, dirs: map[string]string{"phone_lock": tc.then, "other": "Jan 01  2001"}}
			l.cleaned(t, map[bool]string{true: "removed /phone_lock\n"}[tc.removed])
		})
	}
	for _, tc := range []struct {
		name string
		l    listed
		out  string
	}{
		{"UTC is not compared with what may be local time",
			listed{now: "Mar 03 12:07", dirs: map[string]string{"phone_lock": "Mar 03 12:06"}, mdtm: today.Format("2006") + "0303170700"}, ""},
		{"nothing is removed where it cannot tell the time", listed{now: "03.03. 12:07", dirs: map[string]string{"phone_lock": "Jan 01  2001"}}, "cannot tell times in /\n"},
		{"the clock of one that was killed is removed",
			listed{now: "Mar 03 12:07", dirs: map[string]string{"cleaner-far-17.clock": "Mar 03 11:30", "cleaner-far-18.clock": "Mar 03 12:06"}}, "removed /cleaner-far-17.clock\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tc.l.cleaned(t, tc.out)
		})
	}
}
