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
		{fmt.Errorf("%w: 530 this server requires TLS: send AUTH TLS first", locksmith.ErrLogin), 77, "ftpes://"},
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
		tt := &target{name: "phones", settings: &settings{conflict: exitHeld}}
		tt.path, tt.connect.User = "/x", "bob"
		got := classify(c.err, tt)
		if statusOf(got) != c.status || !strings.Contains(got.Error(), c.hint) || !errors.Is(got, c.err) {
			t.Errorf("%v: status %d, %v", c.err, statusOf(got), got)
		}
		if c.status != 66 && !strings.HasPrefix(got.Error(), "phones: ") {
			t.Errorf("%v: the error lacks the name: %v", c.err, got)
		}
	}
	if classify(nil, &target{}) != nil {
		t.Error("classify(nil) is an error")
	}
}

// statusOf returns the exit status of an error.
func statusOf(err error) int {
	if e, ok := errors.AsType[*statusError](err); ok {
		return e.status
	}
	return -1
}

func TestTextsOfServersAreOneLineWithoutControlCharacters(t *testing.T) {
	if got := oneLine("a\nb\x1b[2Jc\x07\r\td\u009b\n"); got != "a b[2Jc d" {
		t.Errorf("%q", got)
	}
}
