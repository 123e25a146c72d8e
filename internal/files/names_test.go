package files

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMountsInTheTree(t *testing.T) {
	const table = `22 1 8:1 / / rw - ext4 /dev/a rw
30 22 8:2 /vol /srv rw - ext4 /dev/b rw
31 30 8:2 /vol/ftp/a /srv/ftp/b rw - ext4 /dev/b rw
32 30 8:2 /elsewhere /srv/ftp/c rw - ext4 /dev/b rw
33 30 8:3 / /srv/ftp/d rw - ext4 /dev/c rw
34 30 8:3 /x\\040y /srv/ftp/e\\040f rw - ext4 /dev/c rw
35 30 8:2 /vol /srv/ftp/all rw - ext4 /dev/b rw
36 30 8:2 /vol/ftp/self /srv/ftp/self rw - ext4 /dev/b rw
`
	var got []string
	for _, two := range twice(mountsIn("/srv/ftp", strings.ReplaceAll(table, `\\`, `\`))) {
		got = append(got, two[0]+" = "+two[1])
	}
	slices.Sort(got)
	want := []string{
		"/ = /all/ftp", "/a = /b", "/all/ftp/a = /b", "/all/ftp/self = /self", "/d/x y = /e f",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// mountTwice mounts a directory of a tree at another place in it, in a process of its own.
func mountTwice(base string) string {
	t, err := Open(base+"/root", Options{State: base + "/state"})
	if err == nil {
		err = unix.Mount(base+"/root/a", base+"/root/b", "", unix.MS_BIND, "")
	}
	if err != nil {
		return "skip: " + err.Error()
	}
	return strings.Join(t.SecondNames([]string{"/", "/a"}), "\n")
}

func TestADirectoryThatIsMountedTwiceIsNamed(t *testing.T) {
	s := serve(t, Options{})
	s.mkdir("/a")
	s.mkdir("/b")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "FILES_TEST_MOUNTS="+filepath.Dir(s.root))
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.Output()
	if err != nil || strings.HasPrefix(string(out), "skip:") {
		t.Skipf("no mounts of one's own here: %v %s", err, out)
	}
	if string(out) != "/a and /b are the same directory, mounted twice\n" {
		t.Errorf("%s", out)
	}
}

// A file system that ignores case shows a file under the same name in capitals, too; here that is a second link.
func TestADirectoryThatIgnoresCaseIsNamed(t *testing.T) {
	s := serve(t, Options{})
	s.mkdir("/d")
	s.mkdir("/plain")
	s.before = func(call string) error {
		for _, temp := range s.temporaries() {
			if dir, base := filepath.Split(s.host(temp)); strings.HasPrefix(temp, "/d/") {
				_ = os.Link(s.host(temp), filepath.Join(dir, strings.ToUpper(base))) // once
			}
		}
		return nil
	}
	got := s.SecondNames([]string{"/plain", "/d", "/d", "/none"})
	if len(got) != 1 || got[0] != "/d ignores case: names that differ in it alone are one file" {
		t.Errorf("%q", got)
	}
}
