package integration

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// silent is the address of a server that takes connections and never says anything.
func silent(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() }) // the kernel takes connections; nobody needs to accept them
	return l.Addr().String()
}

// nobody is an address where nothing listens.
func nobody(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// urlOf names a lock of the server for netlock.
func (s *server) urlOf(user, pass, path string) string {
	return fmt.Sprintf("ftp://%s:%s@%s/%s", user, pass, s.v4, path)
}

func TestNetlockFailuresAreOneLineAndAStatus(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived+"[[lock]]\nmatch = \"/seats/*\"\nlimit = 1\n")
	holding := s.session("other")
	holding.want(257, "MKD /phone_lock")
	holding.want(257, "MKD /seats/1")
	ours := s.urlOf(account, password, "phone_lock")
	for _, c := range []struct {
		name   string
		flags  []string
		url    string
		status int
		says   string
	}{
		{"held, --try", []string{"--try"}, ours, 75, "held by other@127.0.0.1"},
		{"held, --timeout", []string{"--timeout", "300ms"}, ours, 75, "held by other@127.0.0.1"},
		{"no seat", []string{"--try"}, s.urlOf(account, password, "seats/2"), 75, "seats/2"},
		{"wrong password", nil, s.urlOf(account, "wrong", "phone_lock"), 77, "check user (" + account + ") and password"},
		{"unknown account", nil, s.urlOf("nobody", "wrong", "phone_lock"), 77, "check user (nobody)"},
		{"unknown host", nil, "ftp://u:p@no-such-host.invalid/phone_lock", 68, "no-such-host.invalid"},
		{"nobody listens", nil, "ftp://u:p@" + nobody(t) + "/phone_lock", 69, "refused"},
		{"silent", []string{"--timeout", "500ms"}, "ftp://u:p@" + silent(t) + "/phone_lock", 69, "check the address"},
		{"no such directory", nil, s.urlOf(account, password, "none/phone_lock"), 73, "none/phone_lock"},
		{"no TLS", nil, strings.Replace(ours, "ftp:", "ftpes:", 1), 76, "TLS"},
		{"wrong kind of TLS", []string{"--timeout", "500ms"}, strings.Replace(ours, "ftp:", "ftps:", 1), 76, "TLS"},
	} {
		started := time.Now()
		r := finish(t, locker(t, "", append(append([]string{"run"}, c.flags...), c.url, "--", "echo", "it ran")...))
		if r.status != c.status || !strings.Contains(r.out, c.says) || strings.Count(r.out, "\n") != 1 || !strings.HasPrefix(r.out, "netlock: ") {
			t.Errorf("%s: %+v, want status %d and %q", c.name, r, c.status, c.says)
		}
		if strings.Contains(r.out, password) || strings.Contains(r.out, "wrong") {
			t.Errorf("%s: the password is shown: %s", c.name, r.out)
		}
		if took := time.Since(started); took > 5*time.Second {
			t.Errorf("%s: took %v", c.name, took)
		}
	}
}

func TestNetlockBoundsEachCommandOfASilentServer(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "netlock.toml")
	text := fmt.Sprintf("[phones]\naddress = %q\nlock = \"x\"\ntimeout = \"500ms\"\n", silent(t))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"run", "phones", "--", "true"}, {"info", "phones"}, {"list", "phones"}, {"wait", "phones"}} {
		started := time.Now()
		if r := finish(t, locker(t, file, args...)); r.status != 69 || strings.Count(r.out, "\n") != 1 {
			t.Errorf("%q: %+v", args, r)
		}
		if took := time.Since(started); took > 5*time.Second {
			t.Errorf("%q: took %v", args, took)
		}
	}
}

func TestNetlockAtAServerThatIsFull(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived+"[ftp]\nmax_connections = 1\n")
	s.session("other")
	r := finish(t, locker(t, s.profile("phone_lock"), "run", "phones", "--", "true"))
	if r.status != 69 || strings.Count(r.out, "\n") != 1 || !strings.Contains(r.out, "too many") {
		t.Errorf("%+v", r)
	}
}

func TestNetlockInsideItselfDoesNotWaitForItself(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	out := finish(t, locker(t, s.profile("phone_lock"), "run", "phones", "--", netlock, "run", "phones", "--", "true"))
	if out.status != 64 || !strings.Contains(out.out, "/phone_lock is already held by the netlock that runs this") {
		t.Errorf("a lock in itself: %+v", out)
	}
}

func TestNetlockTellsOfLocks(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	profiles := s.profile("phone_lock")
	if r := finish(t, locker(t, profiles, "info", "phones")); r.status != 0 || r.out != "/phone_lock is free\n" {
		t.Errorf("free: %+v", r)
	}
	other := s.session("other")
	other.want(257, "MKD /phone_lock")
	if r := finish(t, locker(t, profiles, "info", "phones")); r.status != 0 || !strings.HasPrefix(r.out, "/phone_lock is held by other@127.0.0.1 for ") {
		t.Errorf("held: %+v", r)
	}
	if r := finish(t, locker(t, profiles, "info", "--json", "phones")); r.status != 0 || !strings.Contains(r.out, `"held": true`) || !strings.Contains(r.out, `"owner": "other@127.0.0.1"`) {
		t.Errorf("as JSON: %+v", r)
	}
	if r := finish(t, locker(t, profiles, "list", "phones", "/")); r.status != 0 || !strings.Contains(r.out, "/phone_lock") || !strings.Contains(r.out, "other@127.0.0.1") {
		t.Errorf("list: %+v", r)
	}
	if r := finish(t, locker(t, profiles, "wait", "--timeout", "300ms", "phones", "/")); r.status != 75 || strings.Count(r.out, "\n") != 1 {
		t.Errorf("wait: %+v", r)
	}
	waiting := launch(t, locker(t, profiles, "wait", "phones", "/"))
	other.want(250, "RMD /phone_lock")
	if got := waiting.exit(t); got != 0 {
		t.Errorf("wait for what is over: exit status %d", got)
	}
}
