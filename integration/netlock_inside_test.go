package integration

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// protecting has a lock that protects a file.
const protecting = "[[lock]]\nmatch = \"/*_lock\"\nprotects = [\"/$1.tsv\"]\nmax_age = \"1h\"\n"

// TestNetlockRunLetsItsCommandChangeWhatTheLockProtects runs each kind of client under the lock, and without it.
func TestNetlockRunLetsItsCommandChangeWhatTheLockProtects(t *testing.T) {
	t.Parallel()
	s := startServer(t, protecting)
	local := filepath.Join(t.TempDir(), "new.tsv")
	for name, c := range map[string]struct{ tool, script string }{
		"curl":         {"curl", `curl -sS -u "$WHO" ${NETLOCK_NONCE:+-Q "SITE LOCK AS $NETLOCK_NONCE"} -T "$LOCAL" "ftp://$SERVER/phone.tsv"`},
		"Net::FTP":     {"perl", `perl -MNet::FTP -e '($host, $port) = split /:/, $ENV{SERVER}; $ftp = Net::FTP->new($host, Port => $port) or die $@; $ftp->login(split /:/, $ENV{WHO}) or die; if ($ENV{NETLOCK_NONCE}) { $ftp->quot("SITE", "LOCK AS $ENV{NETLOCK_NONCE}") == 2 or die $ftp->message } $ftp->put($ENV{LOCAL}, "phone.tsv") or die $ftp->message'`},
		"netlock put":  {"sh", `[ -n "$NETLOCK_NONCE" ] && netlock put $URL "$LOCAL" phone.tsv`},
		"a nested run": {"sh", `[ -n "$NETLOCK_NONCE" ] && netlock put $URL "$LOCAL" phone.tsv && netlock get $URL phone.tsv "$LOCAL.back" && cmp "$LOCAL" "$LOCAL.back"`},
	} {
		t.Run(name, func(t *testing.T) {
			harness.Need(t, c.tool)
			writeFile(t, local, []byte(name+"\n"))
			env := []string{"WHO=" + account + ":" + password, "LOCAL=" + local, "SERVER=" + s.v4}
			cmd := locker(t, s.lockURL("phone_lock"), "run", "URL", "sh", "-c", c.script)
			cmd.Env = append(cmd.Env, env...)
			if r := finish(t, cmd); r.status != 0 || s.read("phone.tsv") != name+"\n" {
				t.Errorf("under the lock: %+v, the file is %q", r, s.read("phone.tsv"))
			}
			cmd = caller(t, "sh", s.lockURL("phone_lock"), "-c", c.script)
			cmd.Env = append(cmd.Env, env...)
			if r := finish(t, cmd); r.status == 0 {
				t.Errorf("without the lock: %+v", r)
			}
		})
	}
}

func TestNetlockRunInsideAnother(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	url := func(lock string) string { return "ftp://" + account + "@" + s.v4 + "/" + lock }
	cmd := locker(t, "", url("a_lock"), "netlock", url("b_lock"), "sh", "-c", "echo $NETLOCK_PATH")
	cmd.Env = append(cmd.Env, "NETLOCK_PASSWORD="+password)
	if r := finish(t, cmd); r.status != 0 || r.out != "/b_lock\n" {
		t.Errorf("%+v", r)
	}
	// The same with ~/.netrc.
	cmd = locker(t, "", "ftp://"+s.v4+"/a_lock", "netlock", url("b_lock"), "sh", "-c", "echo $NETLOCK_PATH")
	netrc := filepath.Join(t.TempDir(), "netrc")
	writeFile(t, netrc, fmt.Appendf(nil, "machine 127.0.0.1 login %s password %s\n", account, password))
	cmd.Env = append(cmd.Env, "NETRC="+netrc)
	if r := finish(t, cmd); r.status != 0 || r.out != "/b_lock\n" {
		t.Errorf("by ~/.netrc: %+v", r)
	}
}

func TestNetlockPutAndGetVerifyTheLockThatTheyInherit(t *testing.T) {
	t.Parallel()
	s := startServer(t, "[[lock]]\nmatch = \"**/*_lock\"\nmax_age = \"1h\"\n") // nothing is protected
	url := s.lockURL("phone_lock")
	local := filepath.Join(t.TempDir(), "local")
	s.write("phone.tsv", "old")
	other := s.session("other")
	for name, c := range map[string]struct {
		held  bool // by another job, whose token %d stands for
		token string
		nonce string
	}{
		"held by nobody":                        {false, "1", "abc"},
		"held by another job":                   {true, "99", "abc"},
		"without a nonce":                       {true, "%d", ""},
		"that a program without netlock claims": {true, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var token uint64
			if c.held {
				token = harness.Token(other.Want(257, "MKD /phone_lock"))
				defer other.Want(250, "RMD /phone_lock")
			}
			env := []string{"NETLOCK_PATH=/phone_lock", "NETLOCK_SERVER=" + s.v4, "NETLOCK_NONCE=" + c.nonce, "NETLOCK_TOKEN=" + strings.Replace(c.token, "%d", fmt.Sprint(token), 1)}
			for _, args := range [][]string{{"put", "URL", local, "phone.tsv"}, {"get", "URL", "phone.tsv", local}} {
				writeFile(t, local, []byte("new"))
				cmd := locker(t, url, args...)
				cmd.Env = append(cmd.Env, env...)
				if r := finish(t, cmd); r.status != 79 || strings.Count(r.out, "\n") != 1 || !strings.Contains(r.out, "/phone_lock") {
					t.Errorf("%q: %+v", args, r)
				}
				if got := s.read("phone.tsv") + " " + readSoon(t, local); got != "old new" {
					t.Errorf("%q: the files are %q", args, got)
				}
			}
		})
	}
}

func TestNetlockPutInsideALockThatItsHolderTookUpAgain(t *testing.T) {
	t.Parallel()
	s := newServer(t, longLived)
	s.start()
	s.pin()
	local := filepath.Join(t.TempDir(), "local")
	writeFile(t, local, []byte("new"))
	cmd := locker(t, s.lockURL("phone_lock"), "run", "URL", "sh", "-c", "echo here; read x; netlock put $URL "+local+" phone.tsv")
	p := launch(t, cmd)
	p.says(t, "here")
	s.kill()
	s.start()
	boss := s.session("boss")
	harness.Await(t, "the lock has a new token", func() bool {
		r, err := boss.Try("SITE LOCK INFO /phone_lock")
		return err == nil && r.Code == 211 && !strings.Contains(r.Text, "token 1\n")
	})
	fmt.Fprintln(p.to)
	p.ended(t, 0)
	if got := s.read("phone.tsv"); got != "new" {
		t.Errorf("the file is %q", got)
	}
}

func TestNetlockReadsNamesThatLookLikeTheWordsOfReplies(t *testing.T) {
	t.Parallel()
	s := startServer(t, defaults)
	s.write("locks/.keep", "")
	name := "/locks/x: held by y@10.0.0.1 for 5s, never expires, token 9; shared by z"
	s.session("other").Want(257, "MKD "+name)
	at := fmt.Sprintf("ftp://%s:%s@%s/%%2Flocks/%s", account, password, s.v4, url.PathEscape(name[7:]))
	r := finish(t, locker(t, "", "info", at))
	if !strings.Contains(r.out, name+" is held by other@127.0.0.1 for ") {
		t.Errorf("%+v", r)
	}
	r = finish(t, locker(t, "", "run", "-n", at, "true"))
	if r.status != 75 || !strings.Contains(r.out, name+": held by other@") {
		t.Errorf("%+v", r)
	}
}

func TestNetlockTimeoutIsTheWholeTimeOverRefusedConnections(t *testing.T) {
	t.Parallel()
	s := newServer(t, longLived)
	s.start()
	url := s.lockURL("phone_lock")
	s.pin()
	s.kill()
	began := time.Now()
	if r := finish(t, locker(t, url, "run", "--timeout", "1s", "URL", "true")); r.status != 69 || !strings.Contains(r.out, "refused") {
		t.Errorf("a server that does not come: %+v", r)
	}
	if took := time.Since(began); took < time.Second {
		t.Errorf("it took %v", took)
	}
	p := launch(t, locker(t, url, "run", "--timeout", "20s", "URL", "echo", "got it"))
	time.Sleep(500 * time.Millisecond) // it is refused meanwhile
	s.start()
	p.says(t, "got it")
	p.ended(t, 0)
}

func TestNetlockTimeoutIsTheWholeTimeThoughTheServerIsKilledOrFrozen(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*server){"killed": (*server).kill, "frozen": func(s *server) { s.freeze() }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, longLived)
			other := s.session("other")
			other.Want(257, "MKD /phone_lock")
			p := launch(t, locker(t, s.lockURL("phone_lock"), "run", "--timeout", "5s", "URL", "true"))
			other.awaitWaiting("/phone_lock", 1)
			end(s)
			if got := p.exit(t); got != 75 && got != 76 {
				t.Errorf("exit status %d", got)
			}
		})
	}
}

func TestNetlockCostsOneCommandASecond(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	var said lineCounter
	address := relayed(t, s.v4, &said)
	cmd := locker(t, "", "run", lockAt(address), "sh", "-c", "echo here; read x")
	p := launch(t, cmd)
	p.says(t, "here")
	before, began := said.lines.Load(), time.Now()
	harness.Await(t, "five commands are said", func() bool { return said.lines.Load() >= before+5 })
	if took := time.Since(began); took < 3500*time.Millisecond { // the first may come at once
		t.Errorf("five commands in %v: that is more than one a second", took)
	}
	p.signal(t, syscall.SIGTERM)
	p.exit(t)
}
