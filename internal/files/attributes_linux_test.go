package files

import (
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// ofOthers makes a file that another group owns, and another user if the process is root.
func (s *served) ofOthers(name string) {
	s.t.Helper()
	s.put(name, "old")
	user, group := -1, 1
	if os.Getuid() == 0 {
		user = 1
	} else {
		groups, _ := os.Getgroups()
		i := slices.IndexFunc(groups, func(g int) bool { return g != os.Getgid() })
		if i < 0 {
			s.t.Skip("the user is in one group only")
		}
		group = groups[i]
	}
	if err := os.Chown(s.host(name), user, group); err != nil {
		s.t.Fatal(err)
	}
}

func TestAFailedReadOfAttributesIsReported(t *testing.T) {
	if _, err := xattrNames(func([]byte) (int, error) { return -1, unix.EOPNOTSUPP }); err != unix.EOPNOTSUPP {
		t.Error(err)
	}
}

// Only a process that may not do so publishes a file of another owner.
func TestAFailedChownIsNoSuccess(t *testing.T) {
	for _, cause := range []error{unix.EIO, unix.EDQUOT, unix.EPERM} {
		s := serve(t, Options{})
		s.ofOthers("/f")
		s.beforeCall = func(call string) error { return map[string]error{"chown": cause}[call] }
		u := s.begun("/f", "new", UploadOptions{})
		err := u.Publish()
		if cause != unix.EPERM {
			wantIs(t, err, cause)
			s.want("/f", "old")
		} else if err != nil || !slices.Contains(u.Lost(), "group") {
			t.Errorf("%v, lost %q", err, u.Lost())
		}
		s.wantClean()
	}
}

// A process that may not give a file away can set a group that it is in.
func TestTheGroupStaysIfTheOwnerIsLost(t *testing.T) {
	s := serve(t, Options{})
	s.ofOthers("/f")
	before, _ := s.Lstat("/f")
	chowns := 0
	s.beforeCall = func(call string) error {
		if call == "chown" {
			chowns++
			return map[int]error{2: unix.EPERM}[chowns]
		}
		return nil
	}
	u := s.begun("/f", "new", UploadOptions{})
	if err := u.Publish(); err != nil {
		t.Fatal(err)
	}
	after, err := s.Lstat("/f")
	if err != nil || before.(*info).details.group != after.(*info).details.group {
		t.Errorf("%+v, %v", after, err)
	}
	if os.Getuid() == 0 && !slices.Equal(u.Lost(), []string{"owner"}) {
		t.Errorf("lost %q", u.Lost())
	}
}

// acl returns an access control list: owner, one user, group, mask, others.
func acl(user uint32, perm uint16) string {
	const none = 0xffffffff
	b := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range []struct {
		tag, perm uint16
		id        uint32
	}{{1, 6, none}, {2, perm, user}, {4, 4, none}, {16, perm | 4, none}, {32, 0, none}} {
		b = binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(b, e.tag), e.perm)
		b = binary.LittleEndian.AppendUint32(b, e.id)
	}
	return string(b)
}

func (s *served) xattr(name, attribute string) string {
	b := make([]byte, 200)
	n, _ := unix.Lgetxattr(s.host(name), attribute, b)
	return string(b[:max(n, 0)])
}

func TestAnUploadKeepsTheAttributesOfTheFile(t *testing.T) {
	s := serve(t, Options{})
	s.mkdir("/d")
	for _, name := range []string{"/f", "/d/plain", "/d/listed"} {
		s.put(name, "old")
	}
	set := func(name, attribute, value string) {
		t.Helper()
		err := unix.Setxattr(s.host(name), attribute, []byte(value), 0)
		if errors.Is(err, unix.ENOTSUP) {
			t.Skip("the file system has no such attributes")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	long := strings.Repeat("x", 150)
	set("/f", "user.note", long)
	set("/f", accessACL, acl(7, 4))
	set("/d/listed", accessACL, acl(8, 6))
	set("/d", "system.posix_acl_default", acl(9, 6))
	for _, name := range []string{"/f", "/d/plain", "/d/listed", "/d/new"} {
		before, _ := s.Lstat(name)
		u := s.begun(name, "new", UploadOptions{})
		if err := u.Publish(); err != nil || len(u.Lost()) > 0 {
			t.Errorf("%s: %v, lost %q", name, err, u.Lost())
		}
		if after, err := s.Lstat(name); err != nil || before != nil && before.Mode() != after.Mode() {
			t.Errorf("%s: %v, %v; was %v", name, after.Mode(), err, before)
		}
	}
	for _, tt := range []struct{ name, attribute, want string }{
		{"/f", "user.note", long}, {"/f", accessACL, acl(7, 4)}, {"/d/plain", accessACL, ""}, {"/d/listed", accessACL, acl(8, 6)},
	} {
		if got := s.xattr(tt.name, tt.attribute); got != tt.want {
			t.Errorf("%s of %s is %q, want %q", tt.attribute, tt.name, got, tt.want)
		}
	}
	if s.xattr("/d/new", accessACL) == "" {
		t.Error("a new file has not the access control list of its directory")
	}
}
