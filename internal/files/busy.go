package files

import (
	"slices"
	"sync"
)

// nameLocks serialize the changes of each name: an upload that began with old content checks the content and replaces it, and no other
// change through the tree comes between. Changes of different names do not wait for each other. The zero value is ready for use.
type nameLocks struct {
	mu    sync.Mutex    // is not held during work on the disk
	busy  []string      // the names under change
	ended chan struct{} // closed when a change ends; nil: no change waits
}

// lock waits until none of the names is under change. Until unlock is called, other changes of these names wait.
func (n *nameLocks) lock(names ...string) (unlock func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for slices.ContainsFunc(names, func(name string) bool { return slices.Contains(n.busy, name) }) {
		if n.ended == nil {
			n.ended = make(chan struct{})
		}
		ended := n.ended
		n.mu.Unlock()
		<-ended
		n.mu.Lock()
	}
	n.busy = append(n.busy, names...)
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.busy = slices.DeleteFunc(n.busy, func(name string) bool { return slices.Contains(names, name) })
		if n.ended != nil {
			close(n.ended)
			n.ended = nil
		}
	}
}
