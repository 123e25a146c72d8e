package files

import (
	"strings"
	"sync"
)

// uploads are those that are under way, and what others have left.
type uploads struct {
	mu   sync.Mutex
	all  map[*Upload]struct{}
	left map[string]string // temporary files that could not be removed, with their directories
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

// claim gives a name in its directory to an upload that chooses one, unless another such upload has it.
func (us *uploads) claim(u *Upload, base string) bool {
	us.mu.Lock()
	defer us.mu.Unlock()
	dir, _ := split(u.name)
	name := join(dir, base)
	for other := range us.all {
		if other != u && other.opt.Unique && other.name == name {
			return false
		}
	}
	u.name = name
	return true
}

// leave notes a temporary file that could not be removed.
func (us *uploads) leave(dir, temp string) {
	us.mu.Lock()
	defer us.mu.Unlock()
	if us.left == nil {
		us.left = make(map[string]string)
	}
	us.left[temp] = dir
}

// takeLeft returns what was noted by leave, and forgets it.
func (us *uploads) takeLeft() (left map[string]string) {
	us.mu.Lock()
	defer us.mu.Unlock()
	left, us.left = us.left, nil
	return left
}

// none says whether no temporary file is there.
func (us *uploads) none() bool {
	us.mu.Lock()
	defer us.mu.Unlock()
	return len(us.all) == 0 && len(us.left) == 0
}
