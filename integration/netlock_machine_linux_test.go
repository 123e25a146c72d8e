package integration

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// runs reports whether a process exists and is no zombie.
func runs(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	_, rest, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(rest, "Z")
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
	pid := strings.TrimSpace(readSoon(t, dir+"/pid"))
	cable("down") // until the end
	var free bool
	harness.Await(t, "the command is gone", func() bool {
		free = strings.Contains(held().Text, "type=free;")
		return !runs(pid)
	})
	if free {
		t.Error("the lock was free before the command was gone")
	}
	harness.Await(t, "the lock is free", func() bool { return strings.Contains(held().Text, "type=free;") })
}
