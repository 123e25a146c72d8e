package driver

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"syscall"
	"testing"
)

// What package files hands on of a transfer is a PathError, whether the disk said it or the connection.
func TestTheReasonOfABrokenTransferIsThatOfTheDiskOrTheConnection(t *testing.T) {
	wrapped := func(err error) error { return &fs.PathError{Op: "upload", Path: "/in/the/tree", Err: err} }
	network := func(err error) error {
		return &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", err)}
	}
	for _, tt := range []struct {
		err  error
		disk bool
		want string
	}{
		{wrapped(syscall.EIO), true, "the server failed to do that"},
		{wrapped(syscall.ENOSPC), true, "no space left"},
		{wrapped(errors.New("tls: bad record MAC")), false, "the data connection broke"},
		{wrapped(network(syscall.EHOSTUNREACH)), false, "the data connection broke"},
		{wrapped(network(syscall.ECONNRESET)), false, "the data connection was cut"},
		{errors.New("local error: tls: protocol version"), false, "the data connection broke"},
	} {
		if got := fromDisk(tt.err); got != tt.disk {
			t.Errorf("%v: from disk: %v", tt.err, got)
		}
		if got := why(tt.err); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.err, got, tt.want)
		}
	}
}
