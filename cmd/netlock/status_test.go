package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/locksmith"
)

func TestEveryFailureHasItsStatus(t *testing.T) {
	unknown := &net.DNSError{Err: "no such host", Name: "h", IsNotFound: true}
	for _, c := range []struct {
		err    error
		status int
		hint   string
	}{
		{&locksmith.HeldError{Path: "/x"}, 75, ""},
		{locksmith.ErrHeld, 75, ""},
		{fmt.Errorf("%w: 530 no", locksmith.ErrLogin), 77, "check user (bob) and password"},
		{fmt.Errorf("%w: %w", locksmith.ErrUnreachable, unknown), 68, "check the address"},
		{fmt.Errorf("%w: %w", locksmith.ErrUnreachable, syscall.ECONNREFUSED), 69, "whether the server runs"},
		{context.DeadlineExceeded, 69, "whether the server runs"},
		{fmt.Errorf("%w: 550 no", locksmith.ErrRefused), 73, "the lock's path (/x)"},
		{locksmith.ErrTLS, 76, "certificate"},
		{locksmith.ErrUnknown, 76, "until its age ends"},
		{errors.Join(locksmith.ErrUnknown, locksmith.ErrHeld), 76, ""},
		{locksmith.ErrLost, 79, ""},
		{interrupted{syscall.SIGTERM}, 143, ""},
		{interrupted{os.Interrupt}, 130, ""},
		{errors.New("odd"), 70, ""},
		{fail(66, "known"), 66, ""},
	} {
		tt := &target{name: "phones", conflict: exitHeld}
		tt.options.Path, tt.options.Server.User = "/x", "bob"
		got := classify(c.err, tt)
		if statusOf(got) != c.status || !strings.Contains(got.Error(), c.hint) || !errors.Is(got, c.err) {
			t.Errorf("%v: status %d, %v", c.err, statusOf(got), got)
		}
		if c.status != 66 && !strings.HasPrefix(got.Error(), "phones: ") {
			t.Errorf("%v: it is not said of what: %v", c.err, got)
		}
	}
	if classify(nil, &target{}) != nil {
		t.Error("an error of nothing")
	}
}

func TestServersCannotWriteMoreThanOneLineNorMoveTheCursor(t *testing.T) {
	if got := oneLine("a\nb\x1b[2Jc\x07\r\td\u009b\n"); got != "a b[2Jc d" {
		t.Errorf("%q", got)
	}
}

func TestDurationsAreShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		1500 * time.Microsecond: "2ms", 12 * time.Second: "12s", time.Minute: "1m", 90 * time.Second: "1m30s",
		time.Hour: "1h", 10 * time.Hour: "10h", time.Hour + time.Second: "1h0m1s", 20 * time.Minute: "20m", 90 * time.Minute: "1h30m",
	} {
		if got := words(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

func TestProgressSaysWhoSinceWhenAndThePlace(t *testing.T) {
	now := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		r    locksmith.Refusal
		want string
	}{
		{locksmith.Refusal{Reply: "File exists"}, "File exists"},
		{locksmith.Refusal{Holder: "a@b", Held: 5 * time.Second, At: 2, Of: 3}, "held by a@b since 15:04:00, place 2 of 3"},
		{locksmith.Refusal{Holder: "a@b"}, "held by a@b since 15:04:05"},
	} {
		if got := describe(c.r, now); got != c.want {
			t.Errorf("%+v: %q, want %q", c.r, got, c.want)
		}
	}
}
