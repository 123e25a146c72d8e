package files

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// accessACL is the extended attribute in which Linux keeps the POSIX access control list of a file.
const accessACL = "system.posix_acl_access"

// keepXattrs copies the access control list and the user attributes of the old file. It removes a list that the temporary file has from its
// directory, if the old file has none. Other attributes belong to the system.
func (u *Upload) keepXattrs() error {
	return u.dir.do("xattr", func(dir int) error {
		return call(u.file, func(file int) error { return u.copyXattrs(dir, file) })
	})
}

func (u *Upload) copyXattrs(dir, file int) error {
	old := fmt.Sprintf("/proc/self/fd/%d/%s", dir, u.base) // only a path works if the process may not read the file
	names, err := xattrNames(func(b []byte) (int, error) { return unix.Llistxattr(old, b) })
	switch {
	case err == unix.ENOTSUP:
		return nil
	case err != nil:
		u.lose(lostXattrs)
		return nil
	}
	for _, name := range names {
		if name != accessACL && !strings.HasPrefix(name, "user.") {
			continue
		}
		value, err := xattrBytes(func(b []byte) (int, error) { return unix.Lgetxattr(old, name, b) })
		if err == nil {
			err = unix.Fsetxattr(file, name, value, 0)
		}
		switch {
		case err == unix.EPERM, err == unix.EACCES, err == unix.ENOTSUP:
			u.lose(map[bool]string{true: lostACL, false: lostXattrs}[name == accessACL])
		case err != nil && err != unix.ENODATA: // a program has removed it meanwhile
			return err
		}
	}
	if slices.Contains(names, accessACL) {
		return nil
	}
	inherited, err := xattrNames(func(b []byte) (int, error) { return unix.Flistxattr(file, b) })
	if err == nil && slices.Contains(inherited, accessACL) {
		err = unix.Fremovexattr(file, accessACL)
	}
	return err
}

// xattrNames returns the names of the attributes of a file.
func xattrNames(list func([]byte) (int, error)) ([]string, error) {
	b, err := xattrBytes(list)
	return strings.FieldsFunc(string(b), func(r rune) bool { return r == 0 }), err
}

// xattrBytes returns what a system call writes that reports the size if it gets no buffer.
func xattrBytes(get func([]byte) (int, error)) ([]byte, error) {
	for {
		n, err := get(nil)
		if n == 0 || err != nil {
			return nil, err
		}
		b := make([]byte, n)
		if n, err = get(b); err != unix.ERANGE { // it has grown meanwhile
			return b[:max(n, 0)], err
		}
	}
}
