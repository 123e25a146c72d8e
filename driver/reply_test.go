package driver

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// No reply contains a path of the server's machine, and no argument ends the session, also if the disk fails.
func TestRepliesShowNoPathOfTheServer(t *testing.T) {
	eachMode(t, func(t *testing.T, s *server) {
		s.write("/f", "x")
		s.mkdir("/dir/sub")
		s.link("/etc", "/out")
		s.link("self", "/self")
		c := s.as("boss")
		help := strings.Split(c.ask("HELP"), "\n")
		verbs := slices.DeleteFunc(strings.Fields(strings.Join(help[1:len(help)-1], " ")+" XYZ LANG"), func(verb string) bool {
			return verb == "QUIT" || verb == "EPSV" // EPSV ALL would refuse later commands
		})
		c.want("MKD /locks/a", "257 *")
		try := func(foreseen bool, arguments ...string) {
			t.Helper()
			for _, verb := range verbs {
				for _, argument := range arguments {
					_, r := c.execute(verb+" "+argument, "x")
					for _, secret := range []string{s.root, s.state, filepath.Base(filepath.Dir(s.root)), "/tmp", "openat", "lstat", "mkdirat", "tcp"} {
						if strings.Contains(r, secret) {
							t.Errorf("%s %.80q: %.300q", verb, argument, r)
						}
					}
					if foreseen && strings.HasPrefix(r, "451") {
						t.Errorf("no row of the table for %s %.80q: %.300q", verb, argument, r)
					}
				}
			}
		}
		try(true, "", "/f/x", "/none/x", "/locks/a/x", "/out/x", "/self/x", "\"\"", "20200101000000 /locks/a", "CHMOD 777 /dir", strings.Repeat("x", 300))
		if err := os.RemoveAll(s.root); err != nil {
			t.Fatal(err)
		}
		try(false, "/f", "/locks/b", "/locks/a/x", "/", "/dir/sub")
	})
}

// Each error of the tree, of the locks and of a transfer has its reply.
func TestEveryErrorHasItsReply(t *testing.T) {
	tr := transfer{client: &client{log: slog.New(slog.DiscardHandler)}, view: "/x"}
	disk := func(err error) error { return &fs.PathError{Op: "openat", Path: "/srv/real/path", Err: err} }
	// Package files returns a PathError for errors of the disk and of the connection.
	network := func(err error) error {
		return disk(&net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", err)})
	}
	const inTransfer = true
	for _, tt := range []struct {
		transfer bool
		err      error
		reply    string
	}{
		{false, disk(syscall.EACCES), "550 /x: permission denied"},
		{false, disk(syscall.EDQUOT), "452 /x: the quota is used up"},
		{false, disk(syscall.EXDEV), "550 /x: cannot be moved to another file system"},
		{false, disk(syscall.EROFS), "550 /x: the file system is read-only"},
		{false, disk(syscall.EBUSY), "450 /x: is in use"},
		{false, disk(syscall.ESTALE), "451 /x: was removed on another machine: try again"},
		{false, disk(syscall.EIO), "451 /x: the server failed to do that"},
		{false, errors.New("panic at /srv/real"), "451 /x: the server failed to do that"},
		{false, fmt.Errorf("/home/bob/a: %w", &lock.HeldError{Holder: lock.Owner{Account: "a"}, Expiry: lock.Expiry{Never: true}}), "550 /x: held by a for 0s, never expires"},
		{false, fmt.Errorf("/home/bob/a: %w", &lock.DelayedError{}), "550 /x: cannot be acquired for 0s: it was taken away from its holder"},
		{inTransfer, disk(errors.New("tls: bad record MAC")), "426 /x: the data connection was cut"},
		{inTransfer, network(syscall.EHOSTUNREACH), "426 /x: the data connection was cut"},
		{inTransfer, disk(syscall.ETIMEDOUT), "426 /x: the data connection was cut"}, // by splice
		{false, disk(syscall.ETIMEDOUT), "451 /x: the server failed to do that"},
		{inTransfer, network(syscall.ECONNRESET), "426 /x: the data connection was cut"},
		{inTransfer, disk(syscall.EIO), "451 /x: the server failed to do that"},
		{inTransfer, disk(syscall.ENOSPC), "452 /x: no space left"},
		{inTransfer, disk(fmt.Errorf("%w: %w", files.ErrNoRoomToCopy, syscall.EDQUOT)), "452 /x: no room for the copy of the file that APPE and REST work on"},
		{inTransfer, disk(syscall.EFBIG), "452 /x: larger than a file may be"},
		{inTransfer, fmt.Errorf("sync: %w", files.ErrNotDurable), "451 /x: done, but it may not survive a loss of power"},
		{inTransfer, lock.ErrUncertain, "451 /x: the server cannot tell whether that happened; *"},
		{inTransfer, lock.ErrStale, "550 /x: the lock has another token by now"},
	} {
		err := tt.err
		if tt.transfer {
			err = tr.dataError(err)
		}
		if got := strings.TrimSpace(string(tr.client.replyFor("/x", err).AppendTo(nil))); !harness.Fits(tt.reply, got) {
			t.Errorf("%v: %q, want %q", tt.err, got, tt.reply)
		}
	}
}

// Some embedded clients read a reply into 128 bytes, and take a longer refusal for a success. conn.line checks the length of
// each reply.
func TestRepliesFitIntoTheBuffersOfEmbeddedClients(t *testing.T) {
	eachMode(t, func(t *testing.T, s *server) {
		for _, n := range []int{1, 39, 60, 80, 100, 110, 116, 120, 140, 240} {
			for _, letter := range []string{"x", "ä", "\xff"} {
				name := strings.Repeat(letter, n)[:n]
				lock, file := "/locks/"+name, "/"+name
				s.write(file, "x")
				holder, other := s.as("phoneacc"), s.as("boss")
				for _, c := range []*conn{holder, other} {
					for _, command := range []string{
						"MKD " + lock, "MKD " + lock + "/member", "SITE LOCK AS " + name, "SITE WAIT 0", "RMD " + file, "RMD " + lock + "/none", "CWD " + lock, "PWD",
						"SITE LOCK BREAK 1 " + lock, "SITE LOCK RENEW " + lock, "SITE LOCK INFO " + file, "SITE CHMOD 7777 " + file, "SITE " + name,
						"MKD " + file, "RNFR " + lock, "RNFR " + file, "RNTO " + lock, "DELE " + lock, "SIZE " + lock, "MDTM " + file + "/none", "MFMT 20200101000000 " + lock,
						"STOR " + lock, "RETR " + lock, "APPE " + file + "/none", "MLSD " + file, "LIST " + file + "/none", "HASH " + lock, "XCRC " + file + "/none", name, "HELP " + name,
						"OPTS " + name, "TYPE " + name, "MODE " + name, "PORT " + name, "ALLO " + name, "AUTH " + name, "MKD /" + name + "_lock", "MKD " + file + ".lock",
					} {
						c.execute(command, "x")
					}
				}
				holder.want("RMD "+lock+"/member", "250 *")
				holder.want("RMD "+lock, "250 *")
			}
		}
	})
}

// A reply that is shortened keeps the reason and the holder of a refusal, and the token of a grant.
func TestAReplyIsShortenedWhereItMattersLeast(t *testing.T) {
	long := strings.Repeat("x", 60) + "/" + strings.Repeat("y", 30)
	tr := transfer{client: &client{log: slog.New(slog.DiscardHandler)}}
	held := &lock.HeldError{
		Refusal: lock.Refusal{Position: lock.QueuePosition{At: 1, Of: 2}}, Held: 2 * time.Second,
		Holder: lock.Owner{Account: "phoneacc", Address: "2001:db8:85a3:8d3:1319:8a2e:370:7348"},
		Expiry: lock.Expiry{Remaining: 30 * time.Minute, Idle: 30 * time.Minute, Latest: 24 * time.Hour},
	}
	noted := &lock.HeldError{Holder: lock.Owner{Account: "ci", Address: "10.0.0.7"}, Note: "web3 4711 backup.sh", Held: 2 * time.Second, Expiry: lock.Expiry{Never: true}}
	withIdle := new(lock.HeldError)
	*withIdle = *noted
	withIdle.Expiry = held.Expiry
	for _, tt := range []struct {
		reply control.Reply
		want  string
	}{
		{tr.client.replyFor("/a", &lock.TimeoutError{Waited: time.Minute, Err: noted}), "550 /a: waited 1m0s: held by ci@10.0.0.7 (web3 4711 backup.sh) for 2s, never expires"},
		{tr.client.replyFor("/a", &lock.TimeoutError{Err: lock.ErrFull}), "452 /a: no space left"},
		{tr.client.replyFor("/a", &lock.TimeoutError{Err: &lock.SuspendedError{Reason: "etcd does not answer"}}), "451 /a: " + notNow},
		{tr.client.replyFor("/"+long[:50], noted), "550 /" + long[:50] + ": held by ci@10.0.0.7 (web3 4711 backup.sh) for 2s, never expires"},
		{tr.client.replyFor("/"+long[:35], withIdle), "550 /" + long[:35] + ": held by ci@10.0.0.7 (web3 4711 backup.sh) for 2s, expires in 24h0m0s..."},
		{tr.client.replyFor("/"+long[:60], withIdle), "550 ..." + long[26:60] + ": held by ci@10.0.0.7 for 2s, expires in 24h0m0s or 30m0s after its last sign of life"},
		{tr.client.replyFor("/"+long[:70], noted), "550 /" + long[:70] + ": held by ci@10.0.0.7 for 2s, never expires"},
		{tr.client.replyFor("/"+long, held), "550 ...yyyyyyyyyyyyy: held by phoneacc@2001:db8:85a3:8d3:1319:8a2e:370:7348 for 2s; place 1 of 2 in the queue, expires in..."},
		{tr.client.replyFor("/"+long, &lock.TimeoutError{Waited: time.Minute, Err: held}), "550 ...yyyyyyyyyyyyy: waited 1m0s: held by phoneacc@2001:db8:85a3:8d3:1319:8a2e:370:7348 for 2s; place 1 of 2 in the queue..."},
		{tr.client.replyFor("/"+long, fs.ErrNotExist), "550 /" + long + ": no such file or directory"},
		{control.Reply{Code: 257, Text: quotedPath("/"+long[:40]) + " locked, token 123, adopted from token 122, expires in 24h0m0s or 30m0s after its last sign of life"}, `257 "/` + long[:40] + `" locked, token 123, adopted from token 122, expires in 24h0m0s or 30m0s...`},
		{control.Reply{Code: 257, Text: quotedPath("/"+long) + " locked, token 123, expires in 24h0m0s"}, `257 "/` + long + `" locked, token 123...`},
		{control.Reply{Code: 257, Text: quotedPath("/"+long+long[:25]) + " locked, token 123, expires in 24h0m0s"}, `257 "/` + long + long[:25] + `"`},
		{control.Reply{Code: 257, Text: quotedPath("/"+long+long) + " locked, token 123, expires in 24h0m0s"}, `257 "/` + long + long + `" locked, token 123, expires in 24h0m0s`},
		{control.Reply{Code: 250, Text: "/" + long + long + " released"}, "250 /" + long + long + " released"},
	} {
		if got := strings.TrimSuffix(string(tt.reply.AppendTo(nil)), "\r\n"); got != tt.want {
			t.Errorf("\n got: %s\nwant: %s", got, tt.want)
		}
	}
}
