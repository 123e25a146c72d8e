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

func TestSuperviseReportsALossAfterTheEndOfTheCommand(t *testing.T) {
	defer goleak.VerifyNone(t)
	for range 12 { // select can take either of the two first
		c, err := startChild("/bin/sh", []string{"sh", "-c", "(trap '' TERM; exec sleep 100) & exit 3"}, os.Environ())
		if err != nil {
			t.Fatal(err)
		}
		for syscall.Kill(c.pid, 0) == nil {
			time.Sleep(time.Millisecond) // until the end of the command waits in c.events
		}
		life, lose := context.WithCancel(t.Context())
		lose()
		lock := &fakeLock{life}
		run := runner{settings: new(settings), stderr: new(bytes.Buffer)}
		if e := run.supervise(c, nil, lock); e.status != 3 || !e.lost {
			t.Fatalf("%+v", e)
		}
	}
}

func TestRunReturnsTheStatusOfTheCommandOrOfTheLoss(t *testing.T) {
	unknown := fail(exitProtocol, "phones: %w", locksmith.ErrUnknown)
	lost := fail(exitLost, "phones: %w", locksmith.ErrLost)
	for _, c := range []struct {
		status int
		lost   bool
		err    error
		want   int
		says   string // on standard error, before report
	}{
		{0, false, nil, 0, ""},
		{7, false, nil, 7, ""},
		{0, false, unknown, exitProtocol, ""}, // report writes it
		{7, false, unknown, 7, "netlock: phones: the lock's state is not known\n"},
		{0, true, lost, exitLost, ""},
		{7, false, lost, exitLost, ""},
	} {
		var written bytes.Buffer
		r := runner{stderr: &written}
		got := statusOf(r.result(ending{status: c.status, lost: c.lost}, c.err))
		if got != c.want || written.String() != c.says {
			t.Errorf("%+v: status %d, wrote %q", c, got, written.String())
		}
	}
}
