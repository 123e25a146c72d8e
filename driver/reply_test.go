package driver

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// No reply shows where on the server's machine anything lies, and no argument ends the session; the disk may fail, too.
func TestRepliesShowNoPathOfTheServer(t *testing.T) {
	eachMode(t, func(t *testing.T, s *server) {
		s.write("/f", "x")
		s.mkdir("/dir/sub")
		s.link("/etc", "/out")
		s.link("self", "/self")
		c := s.as("boss")
		var verbs []string
		help := strings.Split(c.ask("HELP"), "\n")
		for verb := range strings.FieldsSeq(strings.Join(help[1:len(help)-1], " ") + " XYZ SMNT CCC LANG HOST ADAT MIC CONF ENC COMB") {
			if verb != "QUIT" && verb != "REIN" && verb != "EPSV" { // EPSV ALL lasts
				verbs = append(verbs, verb)
			}
		}
		if len(verbs) < 50 {
			t.Fatalf("HELP tells of %d commands", len(verbs))
		}
		c.want("MKD /locks/a", "257 *")
		try := func(arguments ...string) (unforeseen []string) {
			t.Helper()
			for _, verb := range verbs {
				for _, argument := range arguments {
					if testing.Short() && rand.IntN(4) > 0 {
						continue
					}
					r := c.transfer(verb + " " + argument)
					for _, secret := range []string{s.root, s.state, filepath.Base(filepath.Dir(s.root)), "/tmp", "openat", "lstat", "mkdirat", "tcp"} {
						if strings.Contains(r, secret) {
							t.Errorf("%s %.80q: %.300q", verb, argument, r)
						}
					}
					if strings.HasPrefix(r, "451") && argument != "LOCK RENEW /locks/a" {
						unforeseen = append(unforeseen, fmt.Sprintf("%s %.80q: %.300q", verb, argument, r))
					}
				}
			}
			return unforeseen
		}
		if unforeseen := try("", "/", "..", "/f", "/dir/", "/f/x", "/none/x", "/locks/a", "/locks/a/x", "/out/x", "/self/x", "[", "-la /dir", "%s%n%d", "\xff\xfe", "\"\"", "-1",
			"20200101000000 /locks/a", "LOCK INFO /locks/a", "LOCK RENEW /locks/a", "CHMOD 777 /dir", strings.Repeat("x", 300), strings.Repeat("/y", 2000)); len(unforeseen) > 0 {
			t.Errorf("nobody foresaw %s", strings.Join(unforeseen, "\n"))
		}
		if err := os.RemoveAll(s.root); err != nil {
			t.Fatal(err)
		}
		try("/f", "/locks/b", "/locks/a/x", "/", "/dir/sub")
	})
}

func TestEveryErrorHasItsReply(t *testing.T) {
	c := &client{log: slog.New(slog.DiscardHandler)}
	secret := &fs.PathError{Op: "openat", Path: "/srv/real/path", Err: syscall.EIO}
	for _, tt := range []struct {
		err   error
		reply string
	}{
		{fs.ErrNotExist, "550 /x: no such file or directory"},
		{&fs.PathError{Op: "open", Path: "/srv/real", Err: syscall.ENOENT}, "550 /x: no such file or directory"},
		{&fs.PathError{Op: "mkdir", Path: "/srv/real", Err: syscall.EEXIST}, "550 /x: is there already"},
		{&fs.PathError{Op: "mkdir", Path: "/srv/real", Err: syscall.EACCES}, "550 /x: permission denied"},
		{&fs.PathError{Op: "write", Path: "/srv/real", Err: syscall.ENOSPC}, "452 /x: no space left"},
		{&fs.PathError{Op: "write", Path: "/srv/real", Err: syscall.EDQUOT}, "452 /x: the quota is used up"},
		{&fs.PathError{Op: "rename", Path: "/srv/real", Err: syscall.EXDEV}, "550 /x: cannot be moved to another file system"},
		{&fs.PathError{Op: "open", Path: "/srv/real", Err: syscall.EROFS}, "550 /x: the file system is read-only"},
		{&fs.PathError{Op: "rmdir", Path: "/srv/real", Err: syscall.EBUSY}, "450 /x: is in use"},
		{secret, "451 /x: the server failed to do that"},
		{errors.New("panic at /srv/real"), "451 /x: the server failed to do that"},
		{fmt.Errorf("x: %w", &lock.SuspendedError{Reason: "why"}), "451 /x: not now: why; nothing was changed, try again"},
		{&fs.PathError{Op: "fsync", Path: "/srv/real", Err: syscall.ESTALE}, "451 /x: was removed on another machine: try again"},
		{lock.ErrUncertain, "451 /x: the server cannot tell whether that happened; look before you try again"},
		{fmt.Errorf("/home/bob/a: %w", lock.ErrNotHeld), "550 /x: not held"},
		{fmt.Errorf("/home/bob/a: %w", &lock.HeldError{Holder: lock.Owner{Account: "a"}, Expiry: lock.Expiry{Never: true}}), "550 /x: held by a for 0s, never expires"},
		{fmt.Errorf("/home/bob/a: %w", &lock.DelayedError{}), "550 /x: kept back for 0s after it was taken away"},
		{fmt.Errorf("/home/bob/a: %w", lock.ErrNotEmpty), "550 /x: the directory is not empty: remove what is in it first"},
		{errors.Join(errIsLock, secret), "550 /x: is a lock: *"},
	} {
		if got := strings.TrimSpace(string(c.replyFor("/x", tt.err).AppendTo(nil))); !fits(tt.reply, got) {
			t.Errorf("%v: %q, want %q", tt.err, got, tt.reply)
		}
	}
}

// A transfer's last reply tells a client what to do next: 426 to try again, 451 to look first.
func TestTheReplyToATransferThatFailed(t *testing.T) {
	tr := transfer{client: &client{log: slog.New(slog.DiscardHandler)}, view: "/f"}
	// What package files hands on is a PathError, whether the disk said it or the connection.
	wrapped := func(err error) error { return &fs.PathError{Op: "upload", Path: "/in/the/tree", Err: err} }
	network := func(err error) error {
		return &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", err)}
	}
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
		{network(syscall.EHOSTUNREACH), "426 /f: the data connection broke"},
		{wrapped(errors.New("tls: bad record MAC")), "426 /f: the data connection broke"},
		{wrapped(network(syscall.EHOSTUNREACH)), "426 /f: the data connection broke"},
		{wrapped(network(syscall.ECONNRESET)), "426 /f: the data connection was cut"},
		{wrapped(syscall.EIO), "451 /f: the server failed to do that"},
		{wrapped(syscall.ENOSPC), "452 /f: no space left"},
		{files.ErrShrunk, "451 /f: the file has become shorter meanwhile"},
		{fmt.Errorf("sync: %w", files.ErrNotDurable), "451 /f: published, but it may not survive a loss of power"},
		{fmt.Errorf("%w: %w", files.ErrSwept, fs.ErrNotExist), "451 /f: what was sent is gone: another server has taken over, or somebody removed it; try again"},
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
