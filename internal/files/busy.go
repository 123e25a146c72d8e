package files

import (
	"slices"
	"sync"
)

// nameLocks makes the changes of one name follow each other: an upload that began with old content checks that content and replaces it in
// one step for all other changes through the tree. Changes of other names do not wait.
type nameLocks struct {
	mu   sync.Mutex // never held while the disk is waited for
	busy map[string]chan struct{}
}

// lock waits until no name is being changed. Others wait until unlock is called.
func (n *nameLocks) lock(all ...string) (unlock func()) {
	over := make(chan struct{})
	for {
		wait := n.tryLock(all, over)
		if wait == nil {
			break
		}
		<-wait
	}
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, name := range all {
			delete(n.busy, name)
		}
		close(over)
	}
}

// tryLock marks all names as busy until over is closed. If one of them is busy it returns a channel that is closed when that ends.
func (n *nameLocks) tryLock(all []string, over chan struct{}) (wait <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if i := slices.IndexFunc(all, func(name string) bool { return n.busy[name] != nil }); i >= 0 {
		return n.busy[all[i]]
	}
	if n.busy == nil {
		n.busy = make(map[string]chan struct{})
	}
	for _, name := range all {
		n.busy[name] = over
	}
	return nil
}
