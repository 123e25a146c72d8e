package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// freeze stops a server without an end to its connections, as a network does that swallows everything. thaw, which is called at the end
// of the test at the latest, lets it go on.
func (s *server) freeze() (thaw func()) {
	s.t.Helper()
	process := s.cmd.Process
	s.signal(syscall.SIGSTOP)
	thaw = func() { _ = process.Signal(syscall.SIGCONT) }
	s.t.Cleanup(thaw)
	return thaw
}

func TestNetlockRunEndsTheCommandWithTheLocksAgeThoughNothingIsHeardOfTheServer(t *testing.T) {
	t.Parallel()
	s := startServer(t, "[[lock]]\nmatch = \"**/*_lock\"\nmax_age = \"3s\"\n")
	p, _ := s.running(t, "phone_lock", nil, "echo here; exec sleep 100")
	s.freeze()
	p.ends(t, "the command")
	p.ended(t, 79)
	if said := fmt.Sprint(p.cmd.Stderr); !strings.Contains(said, "age of 3s is over") { // and not that the server is silent for too long
		t.Errorf("it says %q", said)
	}
}

func TestNetlockGivesALockBackToAServerThatWakesTooLate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script string
		status int
	}{
		"a command that went well": {"echo here; read x", 76},
		"a command that failed":    {"echo here; read x; exit 7", 7},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, longLived)
			p, _ := s.running(t, "phone_lock", nil, c.script)
			thaw := s.freeze()
			// A question is under way when the command ends, or is not: both must do.
			time.Sleep(400 * time.Millisecond)
			fmt.Fprintln(p.to)
			p.ended(t, c.status)
			said := p.cmd.Stderr.(*strings.Builder).String()
			if strings.Count(said, "\n") != 1 || !strings.Contains(said, "the server does not answer; the lock may stand until its age ends") {
				t.Errorf("it says %q", said)
			}
			thaw()
			s.session("other").wantFree("/phone_lock", patience)
		})
	}
}

func TestNetlockGivesALockBackToAServerThatWakesInTime(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	p, _ := s.running(t, "phone_lock", nil, "echo here; read x; echo bye")
	thaw := s.freeze()
	fmt.Fprintln(p.to)
	p.line() // the command ends
	thaw()
	p.ended(t, 0)
	s.session("other").wantFree("/phone_lock", 0)
}

func TestNetlockRunEndsAllThatItsCommandHasStartedWhenItIsKilled(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	p, _ := s.running(t, "phone_lock", nil, "trap 'echo told' CONT; (sleep 100 & sleep 100) & echo here; sleep 100 & while :; do wait; done")
	// A signal is passed on when all has been started.
	p.signal(t, syscall.SIGCONT)
	p.says(t, "told")
	p.kill()
	p.ends(t, "the command with its children")
}

func TestNetlockRunLeavesAloneWhatItsCommandLeavesRunning(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	p, _ := s.running(t, "phone_lock", nil, "exec 3<&0; (read x <&3; echo still here) & echo here")
	p.ended(t, 0)
	s.session("other").wantFree("/phone_lock", 0)
	p.to.Close()
	p.says(t, "still here")
}

// fill writes to a pipe as much as goes into it.
func fill(t testing.TB, w *os.File) {
	t.Helper()
	raw, err := w.SyscallConn()
	if err == nil {
		err = raw.Write(func(fd uintptr) bool {
			for {
				if _, err := syscall.Write(int(fd), make([]byte, 4096)); err != nil {
					return true
				}
			}
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	w.Fd() // the program gets it blocking
}

func TestNetlockRefusesToHoldALockForAnOrphan(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	for name, c := range map[string]struct{ args, says string }{
		"a file": {"$URL > out", "give netlock a command"},
		"a pipe": {"$URL | (read line; echo $line > out)", "OK"},
	} {
		dir := t.TempDir()
		// The shell that is left waits until its parent has ended.
		orphan := `while kill -0 "$PARENT" 2>/dev/null; do sleep 0.02; done; cut -d" " -f4 /proc/$$/stat > parent; netlock ` + c.args + ``
		if strings.HasPrefix(c.args, "$URL >") {
			orphan = strings.Replace(orphan, "; netlock", "; exec netlock", 1)
		}
		cmd := caller(t, "sh", s.lockURL("phone_lock"), "-c", `PARENT=$$ /bin/sh -c '`+orphan+`' >/dev/null 2>&1 & exit`)
		cmd.Dir = dir
		if r := finish(t, cmd); r.status != 0 {
			t.Fatal(r)
		}
		parent := func() string { return readSoon(t, filepath.Join(dir, "parent")) }
		harness.Await(t, "it is an orphan", func() bool { return parent() != "" })
		if parent() != "1\n" && name == "a file" {
			t.Logf("orphans have the parent %s here", parent())
			continue
		}
		harness.Await(t, name, func() bool { return strings.Contains(readSoon(t, filepath.Join(dir, "out")), c.says) })
	}
	s.session("other").wantFree("/phone_lock", patience)
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

func TestNetlockGivesTheLockBackWhenItsOutputIsFull(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	s.write("phone.tsv", "zoe\t0\n")
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	for _, args := range [][]string{{"URL"}, {"get", "URL", "phone.tsv", "-"}} {
		var said strings.Builder
		cmd := locker(t, s.lockURL("phone_lock"), args...)
		cmd.Stdout, cmd.Stderr = full, &said
		_ = cmd.Run()
		if got := cmd.ProcessState.ExitCode(); got != 74 || strings.Count(said.String(), "no space left") != 1 || strings.Count(said.String(), "\n") != 1 {
			t.Errorf("%q: exit status %d, it says %q", args, got, said.String())
		}
		s.session("other").wantFree("/phone_lock", 0)
	}
}

func TestNetlockHoldsTheLockForAParentThatDoesNotRead(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	fill(t, w)
	cmd := locker(t, s.lockURL("phone_lock"), "URL")
	cmd.Stdout = w
	p := started(t, cmd)
	w.Close()
	other := s.session("other")
	other.awaitHolder("/phone_lock", account)
	s.session("boss").Breaks("/phone_lock")
	p.ended(t, 79)
	other.wantFree("/phone_lock", 0)
}

func TestNetlockRunDescribesTheLockInTheEnvironment(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	cmd := locker(t, "", "run", fmt.Sprintf("ftp://%s@%s/phone_lock", account, s.v4), "--", "sh", "-c", `echo "$NETLOCK_SERVER $NETLOCK_PATH $NETLOCK_TOKEN ${NETLOCK_NONCE:+nonce}"`)
	cmd.Env = append(cmd.Env, "NETLOCK_PASSWORD="+password)
	if r := finish(t, cmd); r.out != s.v4+" /phone_lock 1 nonce\n" {
		t.Errorf("%+v", r)
	}
}
