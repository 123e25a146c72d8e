package files

import (
	"strings"
	"sync"
)

// uploads are those that are under way.
type uploads struct {
	mu  sync.Mutex
	all map[*Upload]struct{}
}

// add enters an upload, remove takes it off again.
func (us *uploads) add(u *Upload) {
	us.mu.Lock()
	defer us.mu.Unlock()
	if us.all == nil {
		us.all = make(map[*Upload]struct{})
	}
	us.all[u] = struct{}{}
}

func (us *uploads) remove(u *Upload) {
	us.mu.Lock()
	defer us.mu.Unlock()
	delete(us.all, u)
}

// moved follows the rename of a directory: the uploads under way below it go with it.
func (us *uploads) moved(from, to string) {
	us.mu.Lock()
	defer us.mu.Unlock()
	for u := range us.all {
		if rest, ok := strings.CutPrefix(u.name, from+"/"); ok {
			u.name = join(to, rest)
		}
	}
}

func (us *uploads) nameOf(u *Upload) string {
	us.mu.Lock()
	defer us.mu.Unlock()
	return u.name
}

// claim gives a name to an upload that chooses one, unless another such upload has it.
func (us *uploads) claim(u *Upload, name string) bool {
	us.mu.Lock()
	defer us.mu.Unlock()
	for other := range us.all {
		if other != u && other.opt.Unique && other.name == name {
			return false
		}
	}
	u.name = name
	return true
}

// record notes which directory an upload is in.
func (us *uploads) record(u *Upload, at recorded) {
	us.mu.Lock()
	defer us.mu.Unlock()
	u.at = at
}

// recorded are the records of those under way.
func (us *uploads) recorded() map[recorded]struct{} {
	us.mu.Lock()
	defer us.mu.Unlock()
	all := make(map[recorded]struct{}, len(us.all))
	for u := range us.all {
		all[u.at] = struct{}{}
	}
	return all
}
