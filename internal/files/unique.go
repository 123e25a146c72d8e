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
	t, suggestion := u.tree, u.name
	for i := range 2 * uniqueTries {
		name := suggestion
		if i > uniqueTries {
			name += "." + newID()[:10]
		} else if i > 0 {
			name += "." + strconv.Itoa(i)
		}
		if !t.uploads.claim(u, name) {
			continue
		}
		_, err := t.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil && !errors.Is(err, ErrReserved) {
			return err
		}
	}
	return fs.ErrExist
}
