package integration

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// protecting has a lock that protects a file.
const protecting = "[[lock]]\nmatch = \"/*_lock\"\nprotects = [\"/$1.tsv\"]\nmax_age = \"1h\"\n"

// TestNetlockRunLetsItsCommandChangeProtectedFiles runs each kind of client under the lock, and without it.
func TestNetlockRunLetsItsCommandChangeProtectedFiles(t *testing.T) {
	t.Parallel()
	s := startServer(t, protecting)
	local := filepath.Join(t.TempDir(), "new.tsv")
	for name, c := range map[string]struct{ tool, script string }{
		"curl":         {"curl", `curl -sS -u "$WHO" ${NETLOCK_NONCE:+-Q "SITE LOCK AS $NETLOCK_NONCE"} -T "$LOCAL" "ftp://$SERVER/phone.tsv"`},
		"Net::FTP":     {"perl", `perl -MNet::FTP -e '($host, $port) = split /:/, $ENV{SERVER}; $ftp = Net::FTP->new($host, Port => $port) or die $@; $ftp->login(split /:/, $ENV{WHO}) or die; if ($ENV{NETLOCK_NONCE}) { $ftp->quot("SITE", "LOCK AS $ENV{NETLOCK_NONCE}") == 2 or die $ftp->message } $ftp->put($ENV{LOCAL}, "phone.tsv") or die $ftp->message'`},
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

func TestNetlockPutAndGetVerifyTheLockThatTheyInherit(t *testing.T) {
	t.Parallel()
	s := startServer(t, "[[lock]]\nmatch = \"**/*_lock\"\nmax_age = \"1h\"\n") // nothing is protected
	url := s.lockURL("phone_lock")
	local := filepath.Join(t.TempDir(), "local")
	s.write("phone.tsv", "old")
	other := s.session("other")
	for name, c := range map[string]struct {
		held  bool // by another job; %d in token stands for its token
		token string
		nonce string
	}{
		"held by no job":          {false, "1", "abc"},
		"held by another job":     {true, "99", "abc"},
		"without a nonce":         {true, "%d", ""},
		"without token and nonce": {true, "", ""},
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

func TestNetlockCostsOneCommandASecond(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	var said lineCounter
	address := relayed(t, s.v4, &said)
	cmd := locker(t, "", "run", lockAt(address), "sh", "-c", "echo here; read x")
	p := launch(t, cmd)
	p.says(t, "here")
	before, began := said.lines.Load(), time.Now()
	harness.Await(t, "five commands were sent", func() bool { return said.lines.Load() >= before+5 })
	if took := time.Since(began); took < 3500*time.Millisecond { // the first may come at once
		t.Errorf("five commands in %v: that is more than one a second", took)
	}
	p.signal(t, syscall.SIGTERM)
	p.exit(t)
}
