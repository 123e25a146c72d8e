package hook

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/event"
)

func TestProcessesOutsideTheGroupAreKilledAtTheTimeout(t *testing.T) {
	child := filepath.Join(t.TempDir(), "child")
	script := `setsid sh -c 'echo $$ >"$0.new" && mv "$0.new" "$0"; exec sleep 600' "$0" >/dev/null 2>&1 & until [ -e "$0" ]; do sleep 0.01; done; exec sleep 600`
	d := newDesk(Hook{Run: []string{"/bin/sh", "-c", script, child}, Timeout: 2 * time.Second})
	d.Sink([]event.Event{{Kind: event.Acquire}})
	d.want(t, map[string]int{"timeout": 1})
	text, err := os.ReadFile(child)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return // it has ended
		}
		if time.Now().After(deadline) {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				t.Error(err)
			}
			t.Fatal("the child that called setsid still runs")
		}
	}
}
