package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// overfills has a client upload more than there is room for.
func (s *server) overfills(t *testing.T, u uploader, kind, reason string) {
	t.Helper()
	c := s.launch(t, u, s.v4, kind)
	if n := c.discarded(reason); n == 0 {
		t.Error("nothing came before the disk was full")
	}
	c.complains()
}

// overfillsItself does so in a session, which goes on with what there is room for.
func (s *server) overfillsItself(t *testing.T) {
	t.Helper()
	c := s.session(account)
	c.T = t
	c.Want(200, "TYPE I")
	s.write("mine", "old")
	err := c.Store("/mine", make([]byte, 3<<20))
	if err == nil || !strings.HasPrefix(err.Error(), "452 /mine: ") {
		t.Errorf("told %v", err)
	}
	s.wantFile(t, "mine", "old")
	c.stores("/mine", "less")
}

// What a disk without room does to every client the other limits do, too: here they are told of by one, and in a session.
func TestLimitsOfTheSystemLeaveTheOldFiles(t *testing.T) {
	t.Parallel()
	t.Run("size of a file", func(t *testing.T) {
		harness.Need(t, "prlimit")
		s := newServer(t, defaults)
		s.through = []string{"prlimit", "--fsize=300000"}
		s.start()
		s.overfills(t, sender("curl"), "I", "larger than a file may be")
		s.overfillsItself(t)
	})
	t.Run("quota", func(t *testing.T) {
		underQuota(t).overfills(t, sender("curl"), "I", `"the quota is used up"`)
		underQuota(t).overfillsItself(t)
	})
}

// underQuota starts a server whose tree has a quota of a megabyte: one of Btrfs, which binds root as well and needs nothing of the kernel
// but that file system. It counts what directories take, too, so that nobody else can make files there while one client uses it up.
func underQuota(t *testing.T) *server {
	t.Helper()
	harness.Need(t, "mkfs.btrfs", "btrfs")
	image := filepath.Join(t.TempDir(), "image")
	writeFile(t, image, nil)
	if err := os.Truncate(image, 128<<20); err != nil {
		t.Fatal(err)
	}
	return onDiskOfItsOwn(t, `mkfs.btrfs -q -f "$1"
mount -t btrfs -o loop "$1" "$0"
btrfs quota enable "$0"
btrfs qgroup limit 1M "$0"`, image)
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
}

// onSmallDisk starts a server whose tree is a file system of its own that nobody else sees.
func onSmallDisk(t *testing.T, options string) *server {
	t.Helper()
	return onDiskOfItsOwn(t, `mount -t tmpfs -o "$1" ftplockd "$0"`, options)
}

// onDiskOfItsOwn starts a server whose tree is what a shell script mounts: see mounts.
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

// mounts has each start of the server run a shell script first, which mounts something on $0, with arguments from $1 on. Nobody else sees it, and it
// goes with the server.
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

// Without room for one more file an upload is refused before any data is sent.
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
