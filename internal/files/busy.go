package files

import (
	"slices"
	"sync"
)

// nameLocks make the changes of one name follow each other: an upload that began with old content checks that content and replaces it in
// one step for all other changes through the tree. Changes of other names do not wait. The zero value is ready for use.
type nameLocks struct {
	mu    sync.Mutex // never held while the disk is waited for
	busy  []string   // the names that are being changed
	ended chan struct{}
}

// lock waits until none of the names is being changed. Other changes of them wait until unlock is called.
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
