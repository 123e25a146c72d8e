//go:build unix

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ftplockd/ftplockd/locksmith"
)

// fakeLock is lost when the test says so.
type fakeLock struct{ lost chan struct{} }

func (l *fakeLock) Path() string          { return "/x" }
func (l *fakeLock) Done() <-chan struct{} { return l.lost }
func (l *fakeLock) Err() error            { return fmt.Errorf("%w: taken away", locksmith.ErrLost) }

// supervised is a shell script that runs under a fake lock.
type supervised struct {
	lock  *fakeLock
	said  *bytes.Buffer
	fifo  *bufio.Reader // what the script writes to "$FIFO"; ends when all that have it open have ended
	ended chan int      // the status; 79 if the lock was lost
}

// supervise starts it, and returns when it has written a line to "$FIFO".
func supervise(t *testing.T, killAfter time.Duration, script string) *supervised {
	t.Helper()
	s := &supervised{
		lock: &fakeLock{make(chan struct{})}, said: new(bytes.Buffer), ended: make(chan int, 1),
	}
	name := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := startChild("/bin/sh", []string{"sh", "-c", "exec 3>\"$FIFO\"; " + script}, append(os.Environ(), "FIFO="+name))
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{killAfter: duration(killAfter), complain: s.said}
	go func() {
		status, lost := r.supervise(c, nil, s.lock)
		if lost {
			status = exitLost
		}
		s.ended <- status
	}()
	file, err := os.Open(name) // waits for the script
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-c.pid, syscall.SIGKILL)
		file.Close()
	})
	s.fifo = bufio.NewReader(file)
	if line, err := s.fifo.ReadString('\n'); err != nil {
		t.Fatal(line, err)
	}
	return s
}

// wait returns the status when the script and all that it has started, as far as they hold the pipe, have ended.
func (s *supervised) wait(t *testing.T) int {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, s.fifo)
		ended <- err
	}()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(15 * time.Second):
		t.Fatal("something still runs")
	}
	return <-s.ended
}

func TestLossEndsTheWholeGroup(t *testing.T) {
	defer goleak.VerifyNone(t)
	for name, script := range map[string]string{
		"a command":                           "echo >&3; exec sleep 100",
		"with children":                       "sleep 100 & sleep 100 & echo >&3; wait",
		"with grandchildren":                  "(sleep 100 & sleep 100) & echo >&3; wait",
		"that ignores SIGTERM":                "trap '' TERM; echo >&3; sleep 100; sleep 100",
		"whose child ignores SIGTERM":         "(trap '' TERM; echo >&3; sleep 100; sleep 100) & wait",
		"that ends, its child ignores it":     "trap 'exit 0' TERM; (trap '' TERM; echo >&3; sleep 100; sleep 100) & wait",
		"that is stopped":                     "echo >&3; kill -STOP $$",
		"that is stopped and ignores SIGTERM": "trap '' TERM; echo >&3; kill -STOP $$",
	} {
		s := supervise(t, 200*time.Millisecond, script)
		lost := time.Now()
		close(s.lock.lost)
		if got := s.wait(t); got != exitLost {
			t.Errorf("%s: status %d", name, got)
		}
		if took := time.Since(lost); took > 5*time.Second {
			t.Errorf("%s: dead after %v", name, took)
		}
		if want := "netlock: /x: the lock was lost: taken away; the command is ended\n"; s.said.String() != want {
			t.Errorf("%s: said %q", name, s.said)
		}
	}
}

func TestLossLeavesTheCommandTimeToEnd(t *testing.T) {
	defer goleak.VerifyNone(t)
	file := filepath.Join(t.TempDir(), "tidy")
	for name, script := range map[string]string{
		"running": "while :; do sleep 0.05; done",
		"stopped": "kill -STOP $$; while :; do sleep 0.05; done",
	} {
		s := supervise(t, time.Minute, "trap 'echo "+name+" > "+file+"; exit 0' TERM; echo >&3; "+script)
		close(s.lock.lost)
		if got := s.wait(t); got != exitLost || content(t, file) != name+"\n" {
			t.Errorf("%s: status %d, it left %q", name, got, content(t, file))
		}
	}
}

func TestLossIsSeenAlsoIfTheCommandHasEndedByItself(t *testing.T) {
	defer goleak.VerifyNone(t)
	for range 12 { // which of the two is seen first is up to chance
		c, err := startChild("/bin/sh", []string{"sh", "-c", "(trap '' TERM; exec sleep 100) & exit 3"}, os.Environ())
		if err != nil {
			t.Fatal(err)
		}
		for syscall.Kill(c.pid, 0) == nil {
			time.Sleep(time.Millisecond) // until it was waited for: its end is what supervise sees
		}
		lock := &fakeLock{make(chan struct{})}
		close(lock.lost)
		run := runner{complain: new(bytes.Buffer)}
		if status, lost := run.supervise(c, nil, lock); status != 3 || !lost {
			t.Fatalf("status %d, lost %t", status, lost)
		}
	}
}

func TestResultOfARun(t *testing.T) {
	unknown := fail(exitProtocol, "phones: %w", locksmith.ErrUnknown)
	lost := fail(exitLost, "phones: %w", locksmith.ErrLost)
	for _, c := range []struct {
		status int
		lost   bool
		err    error
		want   int
		says   string // by itself
	}{
		{0, false, nil, 0, ""},
		{7, false, nil, 7, ""},
		{0, false, unknown, exitProtocol, ""}, // is said by report
		{7, false, unknown, 7, "netlock: phones: the lock's state is not known\n"},
		{0, true, lost, exitLost, ""},
		{7, false, lost, exitLost, ""},
	} {
		var said bytes.Buffer
		r := runner{complain: &said}
		err := r.result(c.status, c.lost, c.err)
		got := exitOK
		if err != nil {
			got = statusOf(err)
		}
		if got != c.want || said.String() != c.says {
			t.Errorf("%+v: status %d, said %q", c, got, said.String())
		}
	}
}
