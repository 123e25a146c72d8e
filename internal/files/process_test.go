package files

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// child starts this test binary as another process that does what children has under the name.
func child(t *testing.T, name string, s *served) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "FILES_TEST_CHILD="+name, "ROOT="+s.root, "STATE="+s.state)
	cmd.Stderr = os.Stderr
	return cmd
}

func childTree() *Tree {
	t, err := Open(os.Getenv("ROOT"), Options{State: os.Getenv("STATE")})
	if err != nil {
		panic(err)
	}
	return t
}

func childUploadUntilKilled() {
	t := childTree()
	for i := range 3 {
		u, err := t.Upload(fmt.Sprint("/f", i), UploadOptions{Append: true})
		if err != nil {
			panic(err)
		}
		if _, err := u.Write([]byte("half")); err != nil {
			panic(err)
		}
	}
	fmt.Println("ready")
	select {}
}

func TestAKilledServerLeavesNothingAfterTheNextStart(t *testing.T) {
	s := serve(t, Options{})
	s.put("/f0", "old")
	s.put("/"+prefix+"xyz", "mine")
	cmd := child(t, "upload until killed", s)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Errorf("%q, %v", line, err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	s.Close()
	s.open(Options{})
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.hostNames(); strings.Join(got, " ") != "/"+prefix+"xyz /f0" || len(s.records()) > 0 {
		t.Errorf("%q, %q", got, s.records())
	}
	s.want("/f0", "old")
}

// childKilledAt dies at the n-th system call of an upload.
func childKilledAt() {
	t := childTree()
	t.SetOptions(0, true)
	n, err := strconv.Atoi(os.Getenv("N"))
	if err != nil {
		panic(err)
	}
	t.before = func(string) error {
		if n--; n == 0 {
			unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
		return nil
	}
	s := &served{Tree: t}
	if err := s.upload("/f", "new", UploadOptions{Append: true}); err != nil {
		panic(err)
	}
}

func TestAServerKilledAtAnyCallLeavesTheOldOrTheNewFile(t *testing.T) {
	contents := make(map[string]int)
	for n := 1; ; n++ {
		s := serve(t, Options{})
		s.put("/f", "old")
		cmd := child(t, "killed at a call", s)
		cmd.Env = append(cmd.Env, fmt.Sprint("N=", n))
		err := cmd.Run()
		s.Close()
		s.open(Options{})
		if err := s.Sweep(t.Context()); err != nil {
			t.Error(err)
		}
		s.wantClean()
		content, _ := os.ReadFile(s.host("/f"))
		contents[string(content)]++
		s.Close()
		if err == nil {
			break
		}
		if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != unix.SIGKILL {
			t.Fatal(err)
		}
	}
	if len(contents) != 2 || contents["old"] < 5 || contents["oldnew"] < 2 {
		t.Errorf("%v", contents)
	}
}

// childFileSizeLimit has a real EFBIG: RLIMIT_FSIZE.
func childFileSizeLimit() {
	limit := unix.Rlimit{Cur: 100_000, Max: 100_000}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		panic(err)
	}
	childFill(unix.EFBIG, 1_000_000, readString)
}

func childFileSizeLimitSpliced() {
	limit := unix.Rlimit{Cur: 3_000_000, Max: 3_000_000}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		panic(err)
	}
	childFill(unix.EFBIG, 8_000_000, readConnection)
}

func childFullDisk() { childOnSmallDisk("size=200k", 1_000_000, readString) }

func childFullDiskSpliced() { childOnSmallDisk("size=3m", 8_000_000, readConnection) }

func childOnSmallDisk(options string, much int, from func(string) io.Reader) {
	if err := unix.Mount("tmpfs", os.Getenv("ROOT"), "tmpfs", 0, options); err != nil {
		fmt.Println("skip:", err)
		return
	}
	childFill(unix.ENOSPC, much, from)
}

func readString(content string) io.Reader { return strings.NewReader(content) }

// readConnection sends content over a connection, from which it is spliced.
func readConnection(content string) io.Reader {
	a, b, err := dialPair()
	if err != nil {
		panic(err)
	}
	go func() {
		io.WriteString(a, content) // it is cut off
		a.Close()
	}()
	return b
}

// childFill uploads too much, and then what fits.
func childFill(want error, much int, from func(string) io.Reader) {
	t := childTree()
	defer t.Close()
	s := &served{Tree: t, root: os.Getenv("ROOT"), state: os.Getenv("STATE")}
	if err := s.upload("/f", "old", UploadOptions{}); err != nil {
		panic(err)
	}
	u, err := t.Upload("/f", UploadOptions{})
	if err != nil {
		panic(err)
	}
	n, err := u.ReadFrom(from(strings.Repeat("x", much)))
	fmt.Println("too much:", errors.Is(err, want), n > 0 && u.Size() < int64(much))
	err = u.Publish()
	fmt.Println("published:", err == nil, errors.Is(err, want))
	content, err := os.ReadFile(s.host("/f"))
	fmt.Println("old:", string(content), err)
	fmt.Println("again:", s.upload("/f", strings.Repeat("y", 50_000), UploadOptions{}))
	list, err := os.ReadDir(s.root)
	fmt.Println("names:", len(list), err)
}

const filled = `too much: true true
published: false true
old: old <nil>
again: <nil>
names: 1 <nil>
`

func TestALimitOnFileSizeLeavesTheOldFile(t *testing.T) {
	for _, name := range []string{"file size limit", "file size limit, spliced"} {
		s := serve(t, Options{})
		out, err := child(t, name, s).Output()
		if err != nil || string(out) != filled {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

func TestAFullFileSystemLeavesTheOldFile(t *testing.T) {
	for _, name := range []string{"full disk", "full disk, spliced"} {
		s := serve(t, Options{})
		cmd := child(t, name, s)
		cmd.SysProcAttr = ownNamespaces(syscall.CLONE_NEWNS)
		out, err := cmd.Output()
		if err != nil || strings.HasPrefix(string(out), "skip:") {
			t.Skipf("no file system of one's own here: %v %s", err, out)
		}
		if string(out) != filled {
			t.Errorf("%s: %s", name, out)
		}
	}
}

// ownNamespaces has a process begin in a user namespace of its own, and in others.
func ownNamespaces(others uintptr) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | others,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
}
