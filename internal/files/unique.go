package files

import (
	"errors"
	"io/fs"
	"strconv"
)

// uniqueTries is how many suffixes of a suggested name are tried before it is random ones.
const uniqueTries = 100

// chooseName gives an upload a name for STOU (RFC 959 section 4.1.3) that neither a file nor another such upload has. That it
// is free is made sure of again when it is published, in one step.
func (u *Upload) chooseName() error {
	suggestion := u.name
	dir, err := u.tree.openDirectory(suggestion)
	switch {
	case err == nil:
		dir.close()
		return u.tryNames(func(int) string { return join(suggestion, "stou."+newID()[:10]) })
	case !missing(err):
		return err
	}
	return u.tryNames(func(i int) string {
		switch {
		case i == 0:
			return suggestion
		case i <= uniqueTries:
			return suggestion + "." + strconv.Itoa(i)
		}
		return suggestion + "." + newID()[:10]
	})
}

func (u *Upload) tryNames(candidate func(int) string) error {
	t := u.tree
	for i := range 2 * uniqueTries {
		name := candidate(i)
		if !t.uploads.claim(u, name) {
			continue
		}
		p, err := t.find(name)
		if err == nil {
			_, err = p.dir.lstat(p.base)
			p.close()
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil && !errors.Is(err, ErrReserved) {
			return err
		}
	}
	return fs.ErrExist
}
