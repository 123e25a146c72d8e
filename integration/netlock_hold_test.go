package integration

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// lockURL names a lock of this server for netlock.
func (s *server) lockURL(lock string) string {
	return s.urlOf(account, password, strings.Replace(lock, "/", "%2F", 1))
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

// longLived has an age longer than a test.
const longLived = "[[lock]]\nmatch = \"**/*_lock\"\nmax_age = \"1h\"\n"

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

// awaitWaiting returns when n clients wait for a lock.
func (s *session) awaitWaiting(name string, n int) {
	s.T.Helper()
	harness.Await(s.T, "a client waits for "+name, func() bool {
		r, err := s.Try("SITE LOCK INFO " + name)
		return err == nil && strings.Contains(r.Text, fmt.Sprint(n, " in the queue"))
	})
}

// awaitHolder returns when an account holds a lock.
func (s *session) awaitHolder(name, account string) {
	s.T.Helper()
	harness.Await(s.T, account+" holds "+name, func() bool {
		r, err := s.Try("SITE LOCK INFO " + name)
		return err == nil && strings.Contains(r.Text, ";account="+account+";")
	})
}
