package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ftplockd/ftplockd/config"
	"github.com/ftplockd/ftplockd/integration/harness"
)

// running is a server in this process, and the facts by which its commands find it.
type running struct {
	t       *testing.T
	dir     string
	file    string
	address string
	log     *harness.LogBuffer

	strangers byte // who tried to log in
}

// startServer runs "ftplockd --config FILE" with that text in the file, to which it adds listen, root and state.
func startServer(t *testing.T, text string) *running {
	t.Helper()
	t.Setenv("FTPLOCKD_PASSWORD", harness.Password)
	dir := t.TempDir()
	r := &running{t: t, dir: dir, file: filepath.Join(dir, "ftplockd.toml"), log: harness.NewLogBuffer()}
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

// run runs a command line; it returns its output and its exit status.
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

// login opens a session.
func (r *running) login() *harness.Session {
	r.t.Helper()
	s, err := harness.Login(nil, r.address, "ftp", 0)
	if err != nil {
		r.t.Fatal(err)
	}
	s.T = r.t
	r.t.Cleanup(func() { s.Conn.Close() })
	return s
}

// expect runs a command that must succeed and print a text.
func (r *running) expect(want string, args ...string) string {
	r.t.Helper()
	out, errs, status := r.run(args...)
	if status != exitOK || !strings.Contains(out, want) {
		r.t.Fatalf("%v: status %d, %q, %q; want %q", args, status, out, errs, want)
	}
	return out
}

// refuses runs a command that must fail with a status and an error.
func (r *running) refuses(want int, says string, args ...string) {
	r.t.Helper()
	if _, errs, status := r.run(args...); status != want || !strings.Contains(errs, says) {
		r.t.Errorf("%q: status %d, %q; want %d and %q", args, status, errs, want, says)
	}
}

func TestALockNameThatIsNotUTF8IsPrintedEncoded(t *testing.T) {
	r := startServer(t, "")
	r.expect("no client is logged in", "sessions")
	r.expect("has no events of /locks/a", "history", "/locks/a")
	r.login().Want(257, "MKD /locks/\xe4")
	r.expect("/locks/%E4", "locks")
	r.expect(`"name_encoded": "/locks/%E4"`, "locks", "--json")
}

func TestKickEndsASession(t *testing.T) {
	r := startServer(t, "[[lock]]\nmatch = '/locks/**'\non_disconnect = 'release'\n")
	s := r.login()
	s.Want(257, "MKD /locks/a")
	r.expect("kicked", "kick", "1-1")
	if reply, err := s.Try("NOOP"); err == nil && reply.Code != 421 {
		t.Error(reply)
	}
	harness.Await(t, "its lock is released", func() bool {
		out, _, _ := r.run("locks")
		return strings.Contains(out, "no locks are held")
	})
	r.refuses(exitFailure, "no session 1-1", "kick", "1-1")
	r.refuses(exitUsage, "3-17", "kick", "17")
	r.refuses(exitUsage, "/locks/demo", "break", "locks")
}

func TestTheLogWarnsOfAHomeThatDoesNotExist(t *testing.T) {
	hash, err := config.HashPassword(harness.Password)
	if err != nil {
		t.Fatal(err)
	}
	r := startServer(t, "[[account]]\nname = 'ftp'\npassword = '"+hash+"'\nhome = '/nope'\n")
	r.log.AwaitLine(t, "home=/nope")
}

func TestCommandsReportThatNoServerRuns(t *testing.T) {
	state := t.TempDir()
	for _, args := range [][]string{{"locks"}, {"sessions"}, {"reload"}, {"kick", "1-1"}, {"break", "/locks/a"}} {
		_, errs, status := runCommand(t.Context(), append(args, "--state", state)...)
		if status != exitFailure || !strings.Contains(errs, "no server") || !strings.Contains(errs, state) {
			t.Errorf("%v: status %d, %q", args, status, errs)
		}
	}
}

func TestOnlyItsOwnerMayReadTheStateDirectory(t *testing.T) {
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

func TestASignalDuringTheStartIsNoError(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	t.Chdir(dir)
	if _, errs, status := runCommand(ctx, "--listen", "127.0.0.1:0"); status != exitOK || strings.Contains(errs, "canceled") {
		t.Errorf("status %d, %s", status, errs)
	}
}

func TestLocksDoesNotSyncTheJournal(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	r := startServer(t, "[http]\nlisten = '"+l.Addr().String()+"'\n")
	r.login().Want(257, "MKD /locks/a")
	syncs := func() string {
		t.Helper()
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		response, err := client.Get("http://" + l.Addr().String() + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		_, count, _ := strings.Cut(string(text), "\nftplockd_journal_sync_seconds_count ")
		count, _, _ = strings.Cut(count, "\n")
		return count
	}
	for range 20 { // the start still fills the next segment, which takes some syncs
		before := syncs()
		r.expect("/locks/a", "locks")
		if before != "" && syncs() == before {
			return
		}
	}
	t.Error("each call of locks synced the journal")
}

// The process of the server is stopped: nothing answers, but connections to its socket succeed.
func TestHealthDoesNotWaitForAServerThatHangs(t *testing.T) {
	state := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(state, "control.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, errs, status := runCommand(ctx, "health", "--state", state); status != exitFailure || errs != "ftplockd: the server does not answer\n" || ctx.Err() != nil {
		t.Errorf("status %d, %q", status, errs)
	}
}
