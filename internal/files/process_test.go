package files

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
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

// ownNamespaces has a process begin in a user namespace of its own, and in others.
func ownNamespaces(others uintptr) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | others,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
}
