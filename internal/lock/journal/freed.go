package journal

import (
	"sync"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// freedMax is how many names are kept in mind.
const freedMax = 4096

// freed are names whose directory the store itself was the last to remove: one of the same name will most likely find nothing
// there, so nobody looks before it is granted. Whoever finds out otherwise by mkdir has taken the name out, so that a client
// which tries in vain over and over has one look each time.
type freed struct {
	mu    sync.Mutex
	names map[lock.Name]struct{}
}

func (f *freed) put(name lock.Name) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.names == nil || len(f.names) >= freedMax {
		f.names = make(map[lock.Name]struct{})
	}
	f.names[name] = struct{}{}
}

// take reports whether the name is among them, and takes it out.
func (f *freed) take(name lock.Name) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, found := f.names[name]
	delete(f.names, name)
	return found
}
