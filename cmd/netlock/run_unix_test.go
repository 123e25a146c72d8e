//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ftplockd/ftplockd/locksmith"
)

// fakeLock is a lock that the test ends.
type fakeLock struct{ life context.Context }

func (l *fakeLock) Path() string             { return "/x" }
func (l *fakeLock) Context() context.Context { return l.life }
func (l *fakeLock) Err() error               { return fmt.Errorf("%w: taken away", locksmith.ErrLost) }
func (l *fakeLock) Expires() time.Time       { return time.Time{} }

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
		life, lose := context.WithCancel(t.Context())
		lose()
		lock := &fakeLock{life}
		run := runner{settings: new(settings), errors: new(bytes.Buffer)}
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
		r := runner{errors: &said}
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
