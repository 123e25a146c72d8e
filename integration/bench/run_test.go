//go:build linux

package main

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/peers"
)

// TestRun measures two servers of ours for a moment, and takes up again what was kept of it.
func TestRun(t *testing.T) {
	dir := inMemoryDir(t)
	file := func(name string) string { return filepath.Join(dir, name) }
	o, err := parse([]string{
		"-dir", dir, "-dir", dir, "-rows", "locks,contended,memory", "-only", "directories = false,echo", "-rounds", "2", "-time", "10ms", "-connections", "1,2",
		"-contenders", "2", "-idle", "5", "-waiting", "3", "-json", file("all.json"), "-table", file("first.md"), "-plots", file("plots"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if o, err = parse([]string{"-from", file("all.json"), "-table", file("second.md")}); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile(file("first.md"))
	second, serr := os.ReadFile(file("second.md"))
	if err != nil || serr != nil || string(first) != string(second) {
		t.Errorf("the same report makes other tables: %v, %v", err, serr)
	}
	for _, want := range []string{"| " + bareLocks + " |", "| " + echoName + " |", "5 idle sessions", "3 more sessions", "One lock, 2 clients", "(2): MKD+RMD pairs"} {
		if !strings.Contains(string(first), want) {
			t.Errorf("no %q in\n%s", want, first)
		}
	}
	if strings.Contains(string(first), "Not measured") {
		t.Errorf("something went wrong:\n%s", first)
	}
	checkPicture(t, filepath.Join(dir, "plots", locksPlot))
	if left, _ := filepath.Glob(file("ftplockd-bench-*")); len(left) > 0 {
		t.Errorf("left over: %q", left)
	}
}

// inMemoryDir is where nobody waits for what others write to the disk; a disk where there is none in memory.
func inMemoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "bench-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestOnlyServersThatAreWantedAreLookedFor(t *testing.T) {
	c, notes, err := newContest(t.Context(), inMemoryDir(t), "echo")
	if err != nil || len(notes) > 0 {
		t.Fatal(notes, err)
	}
	for _, name := range names(c.peers) {
		if name != bareName && name != echoName && name != floorName {
			t.Errorf("%s was looked for", name)
		}
	}
}

func TestReadmeWantsItsMarksBeforeAnythingIsMeasured(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := run(t.Context(), options{readme: true}); err == nil || !strings.Contains(err.Error(), readmeFile) {
		t.Errorf("%v", err)
	}
}

func TestSessionsThatTheMachineCannotSpareAreNotBegun(t *testing.T) {
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Process: &peers.Process{Cmd: &exec.Cmd{Process: self}}}
	now, err := memoryOf(self.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := affordable(p, now/2, 1, 1); err != nil {
		t.Error(err)
	}
	if err := affordable(p, now/2, 1, 1<<30); err == nil || !strings.Contains(err.Error(), "would need") {
		t.Errorf("%v", err)
	}
}

func TestSessionsThatWaitHaveNoReply(t *testing.T) {
	server, end := net.Pipe()
	defer server.Close()
	defer end.Close()
	waiting := crowd{{conn: end, r: bufio.NewReader(end)}}
	if err := waiting.unanswered(); err != nil {
		t.Error(err)
	}
	told := make(chan error, 1)
	go func() { _, err := server.Write([]byte("550 held\r\n")); told <- err }()
	for end := time.Now().Add(5 * time.Second); ; {
		err := waiting.unanswered()
		if err != nil && strings.Contains(err.Error(), "answered with 550") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%v", err)
		}
	}
	if err := <-told; err != nil {
		t.Error(err)
	}
}
