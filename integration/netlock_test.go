package integration

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// longLived has an age longer than a test.
const longLived = "[[lock]]\nmatch = \"**/*_lock\"\nmax_age = \"1h\"\n"

// urlOf names a lock of the server for netlock.
func (s *server) urlOf(user, pass, path string) string {
	return fmt.Sprintf("ftp://%s:%s@%s/%s", user, pass, s.v4, path)
}

func (s *server) lockURL(lock string) string {
	return s.urlOf(account, password, strings.Replace(lock, "/", "%2F", 1))
}

// lockAt names phone_lock of the server at an address.
func lockAt(address string) string {
	return "ftp://" + account + ":" + password + "@" + address + "/phone_lock"
}

// locker prepares netlock. The argument "URL" stands for a lock.
func locker(t testing.TB, url string, args ...string) *exec.Cmd {
	t.Helper()
	args = slices.Clone(args)
	for i := range args {
		if args[i] == "URL" {
			args[i] = url
		}
	}
	return caller(t, netlock, url, args...)
}

// caller prepares a program that finds netlock, and the lock in the variable URL.
func caller(t testing.TB, name, url string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := command(t, name, args...)
	cmd.Env = append(cmd.Env, "URL="+url, "PATH="+filepath.Dir(netlock)+":"+os.Getenv("PATH"))
	return cmd
}

// wantFree checks that the session gets the lock within a time, and releases it.
func (s *session) wantFree(name string, within time.Duration) {
	s.T.Helper()
	for end := time.Now().Add(within); ; time.Sleep(5 * time.Millisecond) {
		if s.wantEither("MKD "+name).Code == 257 {
			s.Want(250, "RMD "+name)
			return
		}
		if time.Now().After(end) {
			s.T.Fatalf("%s is not free after %v", name, within)
		}
	}
}

// readSoon returns the contents of a file, or "" if it does not exist yet.
func readSoon(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(text)
}

// freeze stops a server and leaves its connections open, like a network that loses everything. The end of the test continues it.
func (s *server) freeze() {
	s.t.Helper()
	process := s.cmd.Process
	s.signal(syscall.SIGSTOP)
	s.t.Cleanup(func() { _ = process.Signal(syscall.SIGCONT) })
}

// pin writes the current ports into the configuration, for the next start.
func (s *server) pin() {
	s.t.Helper()
	text, err := os.ReadFile(s.config)
	if err != nil {
		s.t.Fatal(err)
	}
	pinned := strings.NewReplacer("127.0.0.1:0", s.v4, "[::1]:0", s.v6).Replace(string(text))
	writeFile(s.t, s.config, []byte(pinned))
}

// TestNetlockEndsAsSoonAsItsOutputIsClosed: the dots would notice that after up to two seconds.
func TestNetlockEndsAsSoonAsItsOutputIsClosed(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	promptly(t, "closing", 1500*time.Millisecond, func() time.Duration {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd := locker(t, s.lockURL("phone_lock"), "URL")
		cmd.Stdout = w
		p := started(t, cmd)
		w.Close()
		if line, err := bufio.NewReader(r).ReadString('\n'); line != "OK\n" {
			t.Fatalf("it wrote %q, %v", line, err)
		}
		began := time.Now()
		r.Close()
		p.ended(t, 0)
		return time.Since(began)
	})
	s.session("other").wantFree("/phone_lock", 0)
}

// TestNetlockTransferThatIsCutOffChangesNothing cuts the data connection of a get and of a put. It then breaks the lock of a get.
func TestNetlockTransferThatIsCutOffChangesNothing(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	s.errorsExpected = true
	dir := t.TempDir()
	local, whole := filepath.Join(dir, "phone.tsv"), strings.Repeat("x", 1<<20)
	hold := make(chan struct{})
	cut, _ := startCutter(t, s.v4, 300000, nil)
	held, reached := startCutter(t, s.v4, 300000, hold)
	for _, c := range []struct {
		command, address, local, remote string
		status                          int
	}{{"get", cut, "old", whole, 74}, {"put", cut, whole, "old", 74}, {"get", held, "old", whole, 79}} {
		s.write("phone.tsv", c.remote)
		writeFile(t, local, []byte(c.local))
		args := []string{"get", lockAt(c.address), "phone.tsv", local}
		if c.command == "put" {
			args = []string{"put", lockAt(c.address), local, "phone.tsv"}
		}
		p := launch(t, locker(t, "", args...))
		if c.status == 79 {
			<-reached // some of it has come
			s.session("boss").Breaks("/phone_lock")
			close(hold)
		}
		p.ended(t, c.status)
		wantFile(t, local, c.local)
		s.wantFile(t, "phone.tsv", c.remote)
		if all, err := os.ReadDir(dir); err != nil || len(all) != 1 {
			t.Errorf("%s: left over: %v, %v", c.command, all, err)
		}
		s.session("other").wantFree("/phone_lock", 0)
	}
}

// TestNetlockOnEachServer runs netlock on ftplockd and on the other installed servers.
func TestNetlockOnEachServer(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, h host) {
		url := fmt.Sprintf("ftp://%s:%s@%s/%%2F%s/a", h.config.User, h.config.Password, h.config.Address, strings.TrimPrefix(h.dir, "/"))
		holder := launch(t, locker(t, url, "URL", "sh", "-c", "echo here $NETLOCK_PATH; read x"))
		holder.says(t, "here "+h.dir+"/a")
		if r := finish(t, locker(t, url, "-n", "-E", "9", "URL", "echo", "too early")); r.status != 9 || strings.Contains(r.out, "too early") {
			t.Errorf("while it is held: %+v", r)
		}
		holder.to.Close()
		if r := finish(t, locker(t, url, "-w", "60", "URL", "echo", "then")); r.status != 0 || r.out != "then\n" {
			t.Errorf("after that: %+v", r)
		}
		holder.exit(t)
		local := filepath.Join(t.TempDir(), "local")
		writeFile(t, local, []byte("anna\t1\n"))
		remote := filepath.Dir(h.dir+"/a") + "/phone.tsv"
		if !h.tokens {
			remote = h.dir + "/phone.tsv"
		}
		for _, args := range [][]string{{"put", "URL", local, remote}, {"get", "URL", remote, local + ".back"}, {"URL", "netlock", "get", "URL", remote, local + ".inside"}} {
			if r := finish(t, locker(t, url, args...)); r.status != 0 {
				t.Errorf("%q: %+v", args, r)
			}
		}
		for _, name := range []string{".back", ".inside"} {
			wantFile(t, local+name, "anna\t1\n")
		}
	})
}
