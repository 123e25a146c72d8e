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
	t := u.tree
	for i := range 2 * uniqueTries {
		base := u.suggested
		if i > uniqueTries {
			base += "." + newID()[:10]
		} else if i > 0 {
			base += "." + strconv.Itoa(i)
		}
		if !t.uploads.claim(u, base) {
			continue
		}
		_, err := t.Lstat(u.Name())
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil && !errors.Is(err, ErrReserved) {
			return err
		}
	}
	return fs.ErrExist
}

// ChooseAnother gives an upload with Unique another free name in its directory, when Place has returned fs.ErrExist.
func (u *Upload) ChooseAnother() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	err := u.standsLocked()
	if err == nil {
		err = u.chooseName()
	}
	if err == nil {
		_, u.base = split(u.Name())
	}
	return fail("upload", u.Name(), err)
}
