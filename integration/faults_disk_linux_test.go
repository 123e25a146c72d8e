package integration

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// overfills runs a client that uploads more bytes than the disk has.
func (s *server) overfills(t *testing.T, u uploader, kind, reason string) {
	t.Helper()
	c := s.launch(t, u, kind)
	if n := c.discarded(reason); n == 0 {
		t.Error("nothing came before the disk was full")
	}
	c.complains()
}

// overfillsItself does the same in a session, which then uploads a small file.
func (s *server) overfillsItself(t *testing.T) {
	t.Helper()
	c := s.session(account)
	c.T = t
	c.Want(200, "TYPE I")
	s.write("mine", "old")
	err := c.Store("/mine", make([]byte, 3<<20))
	if err == nil || !strings.HasSuffix(err.Error(), "452 /mine: no space left") {
		t.Errorf("told %v", err)
	}
	s.wantFile(t, "mine", "old")
	c.stores("/mine", "less")
}

func TestAFullDiskLeavesTheOldFiles(t *testing.T) {
	t.Parallel()
	s := onSmallDisk(t, "size=1m")
	eachSender(t, senders, func(t *testing.T, u uploader) {
		for i := range count(1, 10) {
			s.overfills(t, u, kind(i+len(u.name)), "no space left")
		}
	})
	t.Run("a session", s.overfillsItself)
	t.Run("a copy", func(t *testing.T) {
		c := s.session(account)
		s.write("big", strings.Repeat("x", 600<<10))
		for _, command := range []string{"APPE /big", "STOR /big"} {
			c.Want(200, "TYPE I")
			c.Want(350, "REST 614400")
			if _, err := c.Open(command); err == nil || !strings.Contains(err.Error(), "452 /big: no room for the copy of the file") {
				t.Errorf("%s: told %v", command, err)
			}
		}
		if err := os.Remove(s.path("big")); err != nil {
			t.Error(err)
		}
	})
}

// onSmallDisk starts a server whose tree is a file system of its own.
func onSmallDisk(t *testing.T, options string) *server {
	t.Helper()
	return onDiskOfItsOwn(t, `mount -t tmpfs -o "$1" ftplockd "$0"`, options)
}

// onDiskOfItsOwn starts a server whose tree is mounted by a shell script: see mounts.
func onDiskOfItsOwn(t *testing.T, script string, args ...string) *server {
	t.Helper()
	s := newServer(t, defaults)
	if err := os.Mkdir(s.root, 0o755); err != nil {
		t.Fatal(err)
	}
	s.mounts(t, s.root, script, args...)
	s.start()
	s.root = fmt.Sprintf("/proc/%d/root%s", s.cmd.Process.Pid, s.root)
	return s
}

// mounts makes each start of the server run a shell script first, which mounts a file system on $0; its arguments begin with $1. The mount is in a
// namespace of its own and ends with the server.
func (s *server) mounts(t *testing.T, at, script string, args ...string) {
	t.Helper()
	harness.Need(t, "unshare", "mount")
	s.through = []string{"unshare", "--mount"}
	if os.Geteuid() != 0 {
		s.through = append(s.through, "--user", "--map-root-user")
	}
	s.through = append(s.through, "sh", "-ec", script+fmt.Sprintf("\nshift %d\nexec \"$@\"", len(args)), at)
	s.through = append(s.through, args...)
	if r := run(t, s.through[0], append(s.through[1:], "true")...); r.status != 0 {
		harness.Missing(t, "no file system of one's own here: "+r.out)
	}
}

// TestADiskWithoutRoomForAFile: an upload is refused before any data is sent.
func TestADiskWithoutRoomForAFile(t *testing.T) {
	t.Parallel()
	s := onSmallDisk(t, "size=1m,nr_inodes=6") // the root, locks, target: three are left
	s.write("target", "old")
	for i := 0; ; i++ {
		if err := os.WriteFile(s.path(fmt.Sprintf("filler%d", i)), nil, 0o644); err != nil {
			break
		}
	}
	s.errorsExpected = true
	if r := run(t, binary, "health", "--state", s.state); r.status != 1 || !strings.Contains(r.out, "no space left") {
		t.Errorf("health of a server that can make no directory: %+v", r)
	}
	c := s.session(account)
	if _, err := c.Open("STOR /target"); err == nil {
		t.Error("an upload begins")
	} else if got := err.Error(); !strings.Contains(got, "452 /target: no space left") {
		t.Errorf("told %q", got)
	}
	s.wantFile(t, "target", "old")
	c.Want(250, "DELE /filler0")
	if err := c.Store("/target", []byte("new")); err != nil || s.read("target") != "new" {
		t.Errorf("with room again: %v, %q", err, s.read("target"))
	}
}
