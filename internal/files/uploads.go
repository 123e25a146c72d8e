package files

import (
	"errors"
	"io/fs"
	"strconv"
	"strings"
	"sync"
)

// uploads are the uploads under way. An upload enters when it begins and leaves when it ends.
type uploads struct {
	mu      sync.Mutex
	all     map[*Upload]struct{}
	claimed map[string]struct{} // the paths that Unique chose for them
	left    bool                // a temporary file could not be removed
}

func (us *uploads) add(u *Upload) {
	us.mu.Lock()
	defer us.mu.Unlock()
	if us.all == nil {
		us.all, us.claimed = make(map[*Upload]struct{}), make(map[string]struct{})
	}
	us.all[u] = struct{}{}
}

func (us *uploads) remove(u *Upload) {
	us.mu.Lock()
	defer us.mu.Unlock()
	delete(us.all, u)
	delete(us.claimed, u.claimed)
	u.claimed = ""
}

// moved follows the rename of a directory: the uploads below it go with it.
func (us *uploads) moved(from, to string) {
	us.mu.Lock()
	defer us.mu.Unlock()
	for u := range us.all {
		if rest, ok := strings.CutPrefix(u.Name(), from+"/"); ok {
			name := join(to, rest)
			u.name.Store(&name)
		}
	}
}

// claim gives an upload another name in its directory, unless another upload has claimed that.
func (us *uploads) claim(u *Upload, base string) bool {
	us.mu.Lock()
	defer us.mu.Unlock()
	dir, _ := split(u.Name())
	name := join(dir, base)
	if _, taken := us.claimed[name]; taken {
		return false
	}
	delete(us.claimed, u.claimed)
	us.claimed[name] = struct{}{}
	u.claimed, u.base = name, base
	u.name.Store(&name)
	return true
}

// leave notes that a temporary file could not be removed.
func (us *uploads) leave() {
	us.mu.Lock()
	defer us.mu.Unlock()
	us.left = true
}

// none reports whether there is no temporary file of this start.
func (us *uploads) none() bool {
	us.mu.Lock()
	defer us.mu.Unlock()
	return len(us.all) == 0 && !us.left
}

// uniqueTries is how many suffixes of a suggested name are numbers; random ones follow.
const uniqueTries = 100

// chooseName gives an upload a name for STOU (RFC 959 section 4.1.3) that neither a file nor another such upload has.
// Place checks again, in one step with the publication, that it is free.
func (u *Upload) chooseName() error {
	for i := range 2 * uniqueTries {
		base := u.suggested
		if i > uniqueTries {
			base += "." + newID()[:10]
		} else if i > 0 {
			base += "." + strconv.Itoa(i)
		}
		if !u.tree.uploads.claim(u, base) {
			continue
		}
		_, err := u.dir.lstat(base)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return newName(err)
		}
	}
	return fs.ErrExist
}

// ChooseAnother gives an upload with Unique another free name in its directory, when Place has returned fs.ErrExist.
func (u *Upload) ChooseAnother() error { return fail("upload", u.Name(), u.chooseName()) }
