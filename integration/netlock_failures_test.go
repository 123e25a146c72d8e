package integration

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// silent returns the address of a server that accepts connections and sends nothing.
func silent(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() }) // the kernel accepts connections without a call of Accept
	return l.Addr().String()
}

// unused returns an address without a listener.
func unused(t testing.TB) string {
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

// lockAt names phone_lock of the server at an address.
func lockAt(address string) string {
	return "ftp://" + account + ":" + password + "@" + address + "/phone_lock"
}

func TestNetlockFailuresAreOneLineAndAStatus(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived+"[[lock]]\nmatch = \"/seats/*\"\nlimit = 1\n")
	holding := s.session("other")
	holding.Want(257, "MKD /phone_lock")
	holding.Want(257, "MKD /seats/1")
	ours := s.urlOf(account, password, "phone_lock")
	const oops = "500 OOPS: vsftpd: refusing to run with writable root inside chroot()"
	greets := greeter(t, oops+"\r\n")
	for _, c := range []struct {
		name   string
		flags  []string
		url    string
		status int
		want   string
	}{
		{"held, --try", []string{"--try"}, ours, 75, "held by other@127.0.0.1"},
		{"held, --timeout", []string{"--timeout", "2s"}, ours, 75, "held by other@127.0.0.1"},
		{"no seat", []string{"--try"}, s.urlOf(account, password, "seats/2"), 75, "seats/2"},
		{"wrong password", nil, s.urlOf(account, "wrong", "phone_lock"), 77, "check user (" + account + ") and password"},
		{"unknown account", nil, s.urlOf("nobody", "wrong", "phone_lock"), 77, "check user (nobody)"},
		{"unknown host", nil, "ftp://u:p@no-such-host.invalid/phone_lock", 68, "no-such-host.invalid"},
		{"no listener", nil, "ftp://u:p@" + unused(t) + "/phone_lock", 69, "refused"},
		{"silent", []string{"--timeout", "1s"}, "ftp://u:p@" + silent(t) + "/phone_lock", 69, "check the address"},
		{"no such directory", nil, s.urlOf(account, password, "none/phone_lock"), 73, "none/phone_lock"},
		{"no lock", nil, s.urlOf(account, password, "notalock"), 73, "no rule of the server makes /notalock a lock"},
		{"a server that refuses with a reason", nil, "ftp://u:p@" + greets + "/phone_lock", 69, "netlock: ftp://u@" + greets + "/phone_lock: " + greets + ": the server replied " + oops + "\n"},
		{"no TLS", nil, strings.Replace(ours, "ftp:", "ftpes:", 1), 76, "TLS"},
		{"wrong kind of TLS", []string{"--timeout", "2s"}, strings.Replace(ours, "ftp:", "ftps:", 1), 76, "TLS"},
	} {
		r := finish(t, locker(t, "", append(append([]string{"run"}, c.flags...), c.url, "--", "echo", "it ran")...))
		if r.status != c.status || !strings.Contains(r.out, c.want) || strings.Count(r.out, "\n") != 1 || !strings.HasPrefix(r.out, "netlock: ") {
			t.Errorf("%s: %+v, want status %d and %q", c.name, r, c.status, c.want)
		}
		if strings.Contains(r.out, password) || strings.Contains(r.out, "wrong") {
			t.Errorf("%s: the password is shown: %s", c.name, r.out)
		}
	}
	if s.exists("notalock") {
		t.Error("the directory is left")
	}
}

// greeter returns the address of a server that sends a greeting to each client and closes the connection.
func greeter(t testing.TB, greeting string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, greeting)
			_ = c.Close()
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		all.Wait()
	})
	return l.Addr().String()
}
