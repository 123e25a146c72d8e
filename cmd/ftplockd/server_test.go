package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/textproto"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ftplockd/ftplockd/config"
)

// syncBuffer is a log that the test reads while the server writes it.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// running is a server in this process, and the facts by which its commands find it.
type running struct {
	t       *testing.T
	dir     string
	file    string
	address string
	log     *syncBuffer
}

// startServer runs "ftplockd --config FILE" with that text in the file, to which it adds listen, root and state.
func startServer(t *testing.T, text string) *running {
	t.Helper()
	t.Setenv("FTPLOCKD_PASSWORD", "secret")
	dir := t.TempDir()
	r := &running{t: t, dir: dir, file: filepath.Join(dir, "ftplockd.toml"), log: new(syncBuffer)}
	r.configure(text)
	banner, stdout := io.Pipe()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	go func() {
		cmd := newRootCommand()
		cmd.SetArgs([]string{"--config", r.file})
		cmd.SetOut(stdout)
		cmd.SetErr(r.log)
		ended <- execute(ctx, cmd)
		stdout.Close()
	}()
	lines := bufio.NewReader(banner)
	line, err := lines.ReadString('\n')
	go io.Copy(io.Discard, lines)
	t.Cleanup(func() {
		stop()
		if status := <-ended; status != exitOK {
			t.Errorf("the server ended with status %d\n%s", status, r.log)
		}
		if _, err := os.Lstat(filepath.Join(dir, "state/control.sock")); !errors.Is(err, fs.ErrNotExist) {
			t.Error("the control socket is left over:", err)
		}
		goleak.VerifyNone(t)
	})
	r.address = strings.TrimSpace(strings.TrimPrefix(line, "ftplockd listens on "))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *running) configure(text string) {
	r.t.Helper()
	head := "listen = ['127.0.0.1:0']\nroot = '" + r.dir + "/files'\nstate = '" + r.dir + "/state'\n"
	if err := os.WriteFile(r.file, []byte(head+text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// run is a command line; it returns what it prints and its exit status.
func (r *running) run(args ...string) (stdout, stderr string, status int) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 20*time.Second)
	defer cancel()
	return runCommand(ctx, append(args, "--config", r.file)...)
}

func runCommand(ctx context.Context, args ...string) (stdout, stderr string, status int) {
	var out, errs bytes.Buffer
	cmd := newRootCommand()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	status = execute(ctx, cmd)
	return out.String(), errs.String(), status
}

// login opens a session; say sends a line and returns the reply.
func (r *running) login() (say func(line string) string, conn net.Conn) {
	r.t.Helper()
	conn, err := net.DialTimeout("tcp", r.address, 10*time.Second)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	in := textproto.NewReader(bufio.NewReader(conn))
	read := func() string {
		line, err := in.ReadLine()
		if err != nil {
			return "error: " + err.Error()
		}
		return line
	}
	read()
	say = func(line string) string {
		if _, err := conn.Write([]byte(line + "\r\n")); err != nil {
			return "error: " + err.Error()
		}
		return read()
	}
	say("USER ftp")
	if got := say("PASS secret"); !strings.HasPrefix(got, "230 ") {
		r.t.Fatal(got)
	}
	return say, conn
}

func (r *running) expect(want string, args ...string) string {
	r.t.Helper()
	out, errs, status := r.run(args...)
	if status != exitOK || !strings.Contains(out, want) {
		r.t.Fatalf("%v: status %d, %q, %q; want %q", args, status, out, errs, want)
	}
	return out
}

// logs waits for a line of the log that has all these words.
func (r *running) logs(words ...string) {
	r.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		for line := range strings.Lines(r.log.String()) {
			if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
				return
			}
		}
	}
	r.t.Fatalf("no line has %q:\n%s", words, r.log)
}

func TestALockNameThatIsNoUTF8IsShownExactly(t *testing.T) {
	r := startServer(t, "")
	r.expect("nobody is logged in", "sessions")
	r.expect("has no events of /locks/a", "history", "/locks/a")
	say, _ := r.login()
	say("MKD /locks/\xe4")
	r.expect("/locks/%E4", "locks")
	r.expect(`"name_encoded": "/locks/%E4"`, "locks", "--json")
}

func TestKickedSessionIsToldAndGone(t *testing.T) {
	r := startServer(t, "[[lock]]\nmatch = '/locks/**'\non_disconnect = 'release'\n")
	say, _ := r.login()
	say("MKD /locks/a")
	r.expect("kicked", "kick", "1-1")
	if got := say("NOOP"); !strings.HasPrefix(got, "421 ") && !strings.HasPrefix(got, "error") {
		t.Error(got)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if out, _, _ := r.run("locks"); strings.Contains(out, "no locks are held") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("its lock is still held")
		}
	}
	if _, errs, status := r.run("kick", "1-1"); status != exitFailure || !strings.Contains(errs, "no session 1-1") {
		t.Error("twice:", status, errs)
	}
	if _, errs, status := r.run("kick", "17"); status != exitUsage || !strings.Contains(errs, "3-17") {
		t.Error("no id:", status, errs)
	}
	if _, errs, status := r.run("break", "locks"); status != exitUsage || !strings.Contains(errs, "/locks/demo") {
		t.Error("no name:", status, errs)
	}
}

func TestAHomeThatIsNotThereIsWarnedOf(t *testing.T) {
	hash, err := config.HashPassword("secret")
	if err != nil {
		t.Fatal(err)
	}
	r := startServer(t, "[[account]]\nname = 'ftp'\npassword = '"+hash+"'\nhome = '/nope'\n")
	if !strings.Contains(r.log.String(), "home=/nope") {
		t.Error(r.log.String())
	}
}

func TestCommandsSayWhenNoServerRuns(t *testing.T) {
	state := t.TempDir()
	for _, args := range [][]string{{"locks"}, {"sessions"}, {"reload"}, {"kick", "1-1"}, {"break", "/locks/a"}} {
		_, errs, status := runCommand(t.Context(), append(args, "--state", state)...)
		if status != exitFailure || !strings.Contains(errs, "no server") || !strings.Contains(errs, state) {
			t.Errorf("%v: status %d, %q", args, status, errs)
		}
	}
}

func TestTheStateDirectoryIsMadeForItsOwnerAlone(t *testing.T) {
	r := startServer(t, "")
	if info, err := os.Stat(filepath.Join(r.dir, "state")); err != nil || info.Mode().Perm() != 0o700 {
		t.Error(info.Mode(), err)
	}
	if info, err := os.Stat(filepath.Join(r.dir, "state/control.sock")); err != nil || info.Mode().Perm() != 0o600 {
		t.Error("the control socket:", info.Mode(), err)
	}
	if info, err := os.Stat(filepath.Join(r.dir, "files")); err != nil || info.Mode().Perm()&0o500 != 0o500 {
		t.Error(info.Mode(), err)
	}
}
