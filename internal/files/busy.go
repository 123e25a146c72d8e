package files

import (
	"slices"
	"sync"
)

// pathMutex serializes changes to one path: no other change through the tree comes between the check of an upload that its old content is
// unchanged and the rename. Changes to different paths do not wait for each other. The zero value is ready for use.
type pathMutex struct {
	mu    sync.Mutex    // is not held during work on the disk
	busy  []string      // the names under change
	ended chan struct{} // closed when a change ends; nil: no change waits
}

// lock waits until none of the names is under change. Until unlock is called, other changes of these names wait.
func (n *pathMutex) lock(names ...string) (unlock func()) {
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
