package files

import (
	"crypto/rand"
	"strings"
	"sync"
)

// prefix begins the names of temporaries; the rest of a name is the id of its record.
const prefix = ".ftplockd-"

// newID returns an id that nobody else has or guesses.
func newID() string { return strings.ToLower(rand.Text()) }

// isID says whether newID could have made it.
func isID(s string) bool {
	return len(s) == 26 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// registry knows the uploads of a tree.
type registry struct {
	mu      sync.RWMutex
	temps   map[string]struct{}  // names of temporaries that are recorded
	live    map[*Upload]struct{} // uploads under way
	claimed map[string]struct{}  // names that were chosen for uploads under way
	swept   bool                 // a first Sweep is done
}

func (r *registry) init() {
	r.temps = make(map[string]struct{})
	r.live = make(map[*Upload]struct{})
	r.claimed = make(map[string]struct{})
}

// isTemporary says whether a name is that of a temporary which is recorded.
func (r *registry) isTemporary(base string) bool {
	if !strings.HasPrefix(base, prefix) {
		return false
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	_, ok := r.temps[base]
	return ok
}

// moved follows the rename of a directory: the uploads under way below it go with it.
func (r *registry) moved(from, to string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for u := range r.live {
		if rest, ok := strings.CutPrefix(u.name, from+"/"); ok {
			u.name = join(to, rest)
		}
	}
}

func (r *registry) add(temp string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.temps[temp] = struct{}{}
}

func (r *registry) remove(temp string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.temps, temp)
}

// begin enters an upload that has begun, end takes it off again.
func (r *registry) begin(u *Upload) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.live[u] = struct{}{}
}

func (r *registry) end(u *Upload) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.live, u)
	if u.claimed != "" {
		delete(r.claimed, u.claimed)
	}
}

func (r *registry) nameOf(u *Upload) string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return u.name
}

// claim takes a name for an upload, if no other has it.
func (r *registry) claim(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, taken := r.claimed[name]
	if !taken {
		r.claimed[name] = struct{}{}
	}
	return !taken
}

func (r *registry) unclaim(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.claimed, name)
}

// firstSweep says whether there was no Sweep before.
func (r *registry) firstSweep() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := !r.swept
	r.swept = true
	return first
}
