package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// trial is a netlock that holds a lock, with the processes that a test can kill.
type trial struct {
	t        testing.TB
	s        *server
	begins   *program
	netlock  int // process ids
	guard    int
	command  int
	parent   int
	watching *session
}

// startTrial starts the server, and a shell, the parent, that starts "netlock URL COMMAND" or, with hold, "netlock URL".
func startTrial(t testing.TB, s *server, hold bool) *trial {
	t.Helper()
	s.start()
	s.pin()
	s.errorsExpected = true
	dir := t.TempDir()
	script := "netlock $URL sh -c 'echo $$ > " + dir + "/command; echo here; exec sleep 100' & echo $! > " + dir + "/netlock; wait"
	if hold {
		script = "netlock $URL & echo $! > " + dir + "/netlock; wait"
	}
	cmd := caller(t, "sh", s.lockURL("phone_lock"), "-c", script)
	tr := &trial{t: t, s: s, begins: launch(t, cmd), watching: s.session("other")}
	if line := tr.begins.line(); line != "here" && line != "OK" {
		t.Fatalf("it wrote %q", line)
	}
	number := func(name string) (pid int) {
		harness.Await(t, "the number of the "+name, func() bool {
			text := readSoon(t, filepath.Join(dir, name))
			n, err := strconv.Atoi(strings.TrimSpace(text))
			pid = n
			return err == nil
		})
		return pid
	}
	tr.parent, tr.netlock = cmd.Process.Pid, number("netlock")
	if !hold {
		tr.command = number("command")
		tr.guard = childOf(t, tr.netlock, "__guard")
		t.Cleanup(func() { _ = syscall.Kill(-tr.command, syscall.SIGKILL) })
	}
	t.Cleanup(func() {
		_ = syscall.Kill(tr.netlock, syscall.SIGKILL)
		if tr.guard > 0 {
			_ = syscall.Kill(tr.guard, syscall.SIGKILL)
		}
	})
	return tr
}

// childOf returns the child of a process with an argument.
func childOf(t testing.TB, parent int, argument string) int {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		line, _ := os.ReadFile(name)
		stat, _ := os.ReadFile(filepath.Join(filepath.Dir(name), "stat"))
		_, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest)
		if strings.Contains(string(line), argument) && len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatalf("process %d has no child %s", parent, argument)
	return 0
}

// runs reports whether a process exists and is no zombie.
func runs(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(rest, "Z")
}

// free reports whether the server answers that no client holds the lock.
func (tr *trial) free() bool {
	if tr.watching == nil {
		return false
	}
	r, err := tr.watching.Try("SITE LOCK INFO /phone_lock")
	return err == nil && strings.Contains(r.Text, "type=free;")
}

// observe returns the times until the command is gone and until the lock is free, or -1. It waits until the limits, and a few seconds longer if one
// of the two must not happen.
func (tr *trial) observe(wantGone, wantFree time.Duration) (gone, free time.Duration) {
	gone, free = -1, -1
	if tr.command == 0 {
		gone = 0
	}
	most := max(wantGone, wantFree, 0)
	for began := time.Now(); time.Since(began) < most+3*time.Second; time.Sleep(20 * time.Millisecond) {
		if gone < 0 && !runs(tr.command) {
			gone = time.Since(began)
		}
		if free < 0 && tr.free() {
			free = time.Since(began)
		}
		if (gone >= 0 || wantGone < 0) && (free >= 0 || wantFree < 0) {
			most = min(most, time.Since(began)) // all expected events have happened
			if gone >= 0 && free >= 0 || tr.watching == nil {
				break
			}
		}
	}
	return gone, free
}

func describeTime(d time.Duration) string {
	if d < 0 {
		return "(not)"
	}
	return d.Round(10 * time.Millisecond).String()
}

// TestNetlockKillTrials kills and stops each part, and measures when the lock is free and the command is gone.
func TestNetlockKillTrials(t *testing.T) {
	t.Parallel()
	const never = -1 * time.Second
	const soon, grace = 10 * time.Second, 30 * time.Second // the grace is 15 s: longer than soon
	for _, c := range []struct {
		victim     string
		signal     syscall.Signal
		hold       bool
		gone, free time.Duration // the latest
	}{
		{"netlock", syscall.SIGTERM, false, soon, soon},
		{"netlock", syscall.SIGKILL, false, soon, grace},
		{"netlock", syscall.SIGSTOP, false, never, never},
		{"netlock and guard", syscall.SIGKILL, false, soon, grace},
		{"guard", syscall.SIGTERM, false, never, never},
		{"guard", syscall.SIGKILL, false, never, never},
		{"guard", syscall.SIGSTOP, false, never, never},
		{"command", syscall.SIGTERM, false, soon, soon},
		{"command", syscall.SIGKILL, false, soon, soon},
		{"command", syscall.SIGSTOP, false, never, never},
		{"parent", syscall.SIGTERM, false, never, never},
		{"parent", syscall.SIGKILL, false, never, never},
		{"parent", syscall.SIGSTOP, false, never, never},
		{"parent", syscall.SIGTERM, true, soon, soon},
		{"parent", syscall.SIGKILL, true, soon, soon},
		{"parent", syscall.SIGSTOP, true, soon, never},
		{"server", syscall.SIGTERM, false, grace, never},
		{"server", syscall.SIGKILL, false, grace, never},
		{"server", syscall.SIGSTOP, false, grace, never},
	} {
		name := c.victim + " " + map[syscall.Signal]string{syscall.SIGTERM: "TERM", syscall.SIGKILL: "KILL", syscall.SIGSTOP: "STOP"}[c.signal]
		if c.hold {
			name += " of netlock URL"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := startTrial(t, newServer(t, longLived), c.hold)
			for _, pid := range map[string][]int{
				"netlock": {tr.netlock}, "netlock and guard": {tr.guard, tr.netlock}, "guard": {tr.guard}, "command": {tr.command},
				"parent": {tr.parent}, "server": {tr.s.cmd.Process.Pid},
			}[c.victim] {
				if err := syscall.Kill(pid, c.signal); err != nil {
					t.Fatal(err)
				}
				if c.signal == syscall.SIGSTOP {
					defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }()
				}
			}
			if c.victim == "server" {
				tr.watching = nil
			}
			gone, free := tr.observe(c.gone, c.free)
			t.Logf("figures: %s: the command is gone after %v, the lock is free after %v", name, describeTime(gone), describeTime(free))
			for what, d := range map[string][2]time.Duration{"the command is gone": {gone, c.gone}, "the lock is free": {free, c.free}} {
				if took, want := d[0], d[1]; want < 0 != (took < 0) || took > want && want > 0 {
					t.Errorf("%s after %s, want %s at the latest", what, describeTime(took), describeTime(want))
				}
			}
		})
	}
}

// onTheOtherMachine runs netlock on the machine of the clients.
func (m *machines) onTheOtherMachine(address, script string) *exec.Cmd {
	m.t.Helper()
	cmd := command(m.t, "ip", "netns", "exec", m.client, netlock, lockAt(address), "sh", "-c", script)
	return cmd
}

// TestNetlockOnAMachineThatIsDeadOrCutOff needs root.
func TestNetlockOnAMachineThatIsDeadOrCutOff(t *testing.T) {
	t.Parallel()
	m := newMachines(t)
	s, address := m.start(longLived + "[ftp]\nuser_timeout = \"2s\"\n")
	s.errorsExpected = true
	cable := func(state string) { m.ip("-n", m.client, "link", "set", "cable", state) }
	other := m.session(m.server, address, "other")
	dir := t.TempDir()
	held := func() harness.Reply {
		r, err := other.Try("SITE LOCK INFO /phone_lock")
		if err != nil {
			t.Fatal(err)
		}
		return r
	}

	p := launch(t, m.onTheOtherMachine(address, "echo here; read x; echo got $x"))
	p.says(t, "here")
	cable("down") // for less than the grace, and longer than user_timeout
	harness.Await(t, "the server gives up the connection", func() bool { return len(s.sessions(account)) == 0 })
	if r := held(); !strings.Contains(r.Text, "type=lock;") {
		t.Errorf("while the network is broken: %v", r)
	}
	cable("up")
	harness.Await(t, "the lock is adopted", func() bool {
		return strings.Contains(held().Text, "token") && !strings.Contains(held().Text, "token 1\n")
	})
	fmt.Fprintln(p.to, "it")
	p.says(t, "got it")
	p.ended(t, 0)
	other.wantFree("/phone_lock", 0)

	p = launch(t, m.onTheOtherMachine(address, "echo $$ > "+dir+"/pid; echo here; exec sleep 100"))
	p.says(t, "here")
	pid, err := strconv.Atoi(strings.TrimSpace(readSoon(t, dir+"/pid")))
	if err != nil {
		t.Fatal(err)
	}
	cable("down") // until the end
	began := time.Now()
	gone, free := time.Duration(-1), time.Duration(-1)
	for (gone < 0 || free < 0) && time.Since(began) < 50*time.Second {
		if gone < 0 && !runs(pid) {
			gone = time.Since(began)
		}
		if free < 0 && strings.Contains(held().Text, "type=free;") {
			free = time.Since(began)
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Logf("figures: a machine without a network, user_timeout 2 s: the command is gone after %v, the lock is free after %v", gone, free)
	if gone < 0 || free < 0 || free < gone {
		t.Errorf("the command is gone after %v, the lock is free after %v", gone, free)
	}
}
