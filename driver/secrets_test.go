package driver

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// oddArguments are what nobody expects of a client.
var oddArguments = []string{
	"", " ", "\t", "/", ".", "..", "../../..", "/f", "/dir", "/dir/", "/f/x", "/none/x", "/locks/a", "/locks/a/x", "/locks", "/out", "/out/x", "/self/x",
	"/.locks.json", "*", "[", "/*/*", "-la", "-la /dir", "-d", "--", "%s%n%d", "\xff\xfe", `"`, `""`, `"/f"`, "'", "|", "|||", "|1|127.0.0.1|1|", "1,2,3,4,5,6",
	"0", "-1", "99999999999999999999", "A", "I", "P", "ALL", "TLS", "R 1 2", "20200101000000 /f", "20200101000000 /locks/a", "MLST type;", "UTF8", "HASH MD5",
	"LOCK INFO /locks/a", "LOCK BREAK 1 /none", "LOCK RENEW /locks/a", "LOCK AGE 1", "CHMOD 777 /dir", "CHMOD 777 /locks/a", "LOCKS", "LOCKS [", "MKDIR /x", "UTIME",
	strings.Repeat("x", 300), strings.Repeat("/y", 2500), strings.Repeat("%", 4000),
}

// No reply shows where on the server's machine anything lies, and no argument ends the session.
func TestRepliesShowNoPathOfTheServer(t *testing.T) {
	eachMode(t, func(t *testing.T, s *server) {
		s.write("/f", "x")
		s.mkdir("/dir/sub")
		s.link("/etc", "/out")
		s.link("self", "/self")
		c := s.as("boss")
		scan := func(command, r string) {
			t.Helper()
			for _, secret := range []string{s.root, s.state, filepath.Base(filepath.Dir(s.root)), "/tmp", "openat", "lstat", "mkdirat", "tcp"} {
				if strings.Contains(r, secret) && !strings.Contains(command, secret) {
					t.Errorf("%.80q: %.300q", command, r)
				}
			}
			if strings.HasPrefix(r, "451") && !strings.HasPrefix(command, "SITE LOCK RENEW") {
				t.Errorf("nobody foresaw %.80q: %.300q", command, r)
			}
		}
		try := func(command, verb string) {
			t.Helper()
			switch verb {
			case "RETR", "LIST", "NLST", "MLSD":
				_, r := c.download(command)
				scan(command, r)
			case "STOR", "APPE", "STOU":
				scan(command, c.upload(command, "x"))
			default:
				scan(command, c.ask(command))
			}
		}
		verbs := []string{"ABOR", "XYZ", "mkd"}
		help := strings.Split(c.ask("HELP"), "\n")
		for verb := range strings.FieldsSeq(strings.Join(help[1:len(help)-1], " ") + " SMNT CCC LANG HOST ADAT MIC CONF ENC COMB") {
			switch verb {
			case "QUIT", "REIN", "EPSV": // EPSV ALL lasts
			default:
				verbs = append(verbs, verb)
			}
		}
		if len(verbs) < 50 {
			t.Fatalf("HELP tells of %d commands", len(verbs))
		}
		c.want("MKD /locks/a", "257 *")
		for _, verb := range verbs {
			for _, argument := range oddArguments {
				if testing.Short() && rand.IntN(4) > 0 {
					continue
				}
				try(verb+" "+argument, verb)
			}
		}
		c.want("HELP marker", "502 unknown command 'MARKER'")

		// Now the disk fails, as far as root can make it.
		if err := errors.Join(os.RemoveAll(s.root), os.RemoveAll(filepath.Join(s.state, "notes"))); err != nil {
			t.Fatal(err)
		}
		for _, verb := range verbs {
			for _, argument := range []string{"/f", "/locks/b", "/locks/a/x", "/", "/dir/sub"} {
				if verb == "STOR" || verb == "APPE" || verb == "STOU" {
					r := c.upload(verb+" "+argument, "x")
					if strings.Contains(r, "/tmp") || strings.Contains(r, s.root) {
						t.Errorf("%s %s: %q", verb, argument, r)
					}
					continue
				}
				if r := c.ask(verb + " " + argument); strings.Contains(r, "/tmp") || strings.Contains(r, s.root) || strings.Contains(r, "openat") {
					t.Errorf("%s %s: %q", verb, argument, r)
				}
			}
		}
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

func TestPasswordsAreNotLogged(t *testing.T) {
	var log logged
	s := start(t, func(o *setup) { o.log = log.logger() })
	c := s.as("phoneacc")
	c.want("pass "+password, "230 *")
	c.want("MKD /locks/a", "257 *")
	c.Close()
	s.alone()
	if got := log.String(); strings.Contains(got, password) || !strings.Contains(got, "MKD /locks/a") {
		t.Errorf("log: %s", got)
	}
}

// Who knows the nonce of a job speaks for its locks, and who reads the log must be able to find the session of a line.
func TestTheLogHasNoNonceAndTheIDsThatTheListHas(t *testing.T) {
	var log logged
	s := start(t, func(o *setup) { o.log = log.logger() })
	a := s.as("phoneacc")
	a.want("site  lock  as hush-hush", "200 *")
	a.want("SITE LOCK AS hush-hush", "200 *")
	a.want("MKD /locks/a", "257 *")
	id := s.table.Sessions()[0].Owner.Session.String()
	if got := log.String(); strings.Contains(got, "hush") || !strings.Contains(got, `session=`+id+` line="MKD /locks/a"`) {
		t.Errorf("session %s, log: %s", id, got)
	}
}
