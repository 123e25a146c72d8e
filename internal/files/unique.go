package files

import (
	"errors"
	"io/fs"
	"strconv"

	"golang.org/x/sys/unix"
)

// uniqueTries is how many suffixes of a suggested name are tried before it is random ones.
const uniqueTries = 100

// freeName chooses a name for STOU (RFC 959 section 4.1.3) that neither a file nor another such upload has. That it
// is free is made sure of again when it is published, in one step.
func (t *Tree) freeName(name string) (string, error) {
	suggestion := name
	fd, err := t.sys.open(name, dirFlags, 0)
	switch {
	case err == nil:
		unix.Close(fd)
		return t.tryNames(func(int) string { return join(name, "stou."+newID()[:10]) })
	case !missing(err):
		return "", err
	}
	return t.tryNames(func(i int) string {
		switch {
		case i == 0:
			return suggestion
		case i <= uniqueTries:
			return suggestion + "." + strconv.Itoa(i)
		}
		return suggestion + "." + newID()[:10]
	})
}

func (t *Tree) tryNames(candidate func(int) string) (string, error) {
	for i := range 2 * uniqueTries {
		name := candidate(i)
		if !t.reg.claim(name) {
			continue
		}
		p, err := t.find(name, dirFlags)
		if err == nil {
			_, err = t.sys.lstatat(p.dir, p.base, p.base)
			p.close()
		}
		if err == unix.ENOENT {
			return name, nil
		}
		t.reg.unclaim(name)
		if err != nil && !errors.Is(err, ErrReserved) {
			return "", err
		}
	}
	return "", fs.ErrExist
}
