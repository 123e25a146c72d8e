package driver

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// What package files hands on of a transfer is a PathError, whether the disk said it or the connection.
func TestTheReasonOfABrokenTransferIsThatOfTheDiskOrTheConnection(t *testing.T) {
	tr := transfer{client: &client{log: slog.New(slog.DiscardHandler)}}
	wrapped := func(err error) error { return &fs.PathError{Op: "upload", Path: "/in/the/tree", Err: err} }
	network := func(err error) error {
		return &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", err)}
	}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{wrapped(syscall.EIO), "the server failed to do that"},
		{wrapped(syscall.ENOSPC), "no space left"},
		{wrapped(errors.New("tls: bad record MAC")), "the data connection broke"},
		{wrapped(network(syscall.EHOSTUNREACH)), "the data connection broke"},
		{wrapped(network(syscall.ECONNRESET)), "the data connection was cut"},
		{errors.New("local error: tls: protocol version"), "the data connection broke"},
	} {
		if _, got, _ := tr.client.explain(tr.named(tt.err)); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.err, got, tt.want)
		}
	}
}

// A transfer's last reply tells a client what to do next: 426 to try again, 451 to look first.
func TestTheReplyToATransferThatFailed(t *testing.T) {
	tr := transfer{client: &client{log: slog.New(slog.DiscardHandler)}, view: "/f"}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{errNotOpened, "425 /f: cannot open the data connection"},
		{errAborted, "426 /f: aborted by ABOR"},
		{errStalled, "426 /f: the data connection stood still for too long"},
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, "426 /f: the data connection stood still for too long"},
		{io.ErrUnexpectedEOF, "426 /f: the data connection ended without a close_notify of TLS"},
		{errors.New("tls: bad record MAC"), "426 /f: the data connection broke"},
		{&net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.EHOSTUNREACH)}, "426 /f: the data connection broke"},
		{&fs.PathError{Op: "write", Path: "/in/the/tree", Err: syscall.EIO}, "451 /f: the server failed to do that"},
		{&fs.PathError{Op: "write", Path: "/in/the/tree", Err: syscall.ENOSPC}, "452 /f: no space left"},
		{files.ErrShrunk, "451 /f: the file has become shorter meanwhile"},
		{fmt.Errorf("sync: %w", files.ErrNotDurable), "451 /f: published, but it may not survive a loss of power"},
		{files.ErrMoved, "451 /f: a directory above it was moved meanwhile"},
		{lock.ErrUncertain, "451 /f: the server cannot tell whether that happened; *"},
		{lock.ErrConflict, "451 /f: somebody else changed it at the same moment, try again"},
		{lock.ErrStale, "550 /f: the token is not the lock's any more"},
		{errPanic, "451 /f: internal error"},
	} {
		if got := strings.TrimSpace(string(tr.client.replyFor(tr.view, tr.named(tt.err)).AppendTo(nil))); !fits(tt.want, got) {
			t.Errorf("%v: %q, want %q", tt.err, got, tt.want)
		}
	}
}
