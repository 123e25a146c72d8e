package locktest

import (
	"context"
	"sync"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// Disk is a lock.Disk in memory. It makes every directory, and removes every directory unless OnRemove prevents it. The zero value is ready.
type Disk struct {
	mu     sync.Mutex
	last   uint64
	remove func(lock.Hold) error
}

var _ lock.Disk = (*Disk)(nil)

// OnRemove makes Remove return the error of f; nil: no error.
func (d *Disk) OnRemove(f func(lock.Hold) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remove = f
}

// Free implements lock.Disk.
func (d *Disk) Free(lock.Name) bool { return false }

// Make implements lock.Disk.
func (d *Disk) Make(context.Context, lock.Name) (lock.DirectoryID, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last++
	return lock.DirectoryID{Inode: d.last}, nil
}

// Check implements lock.Disk.
func (d *Disk) Check(context.Context, lock.Name) error { return nil }

// Create implements lock.Disk.
func (d *Disk) Create(ctx context.Context, n lock.Name) (lock.DirectoryID, error) {
	return d.Make(ctx, n)
}

// Remove implements lock.Disk.
func (d *Disk) Remove(_ context.Context, h lock.Hold, _ lock.Cause) (string, error) {
	d.mu.Lock()
	f := d.remove
	d.mu.Unlock()
	if f == nil {
		return "", nil
	}
	return "", f(h)
}

// Gone implements lock.Disk.
func (d *Disk) Gone(context.Context, lock.Hold) (bool, error) { return false, nil }

// Freshen implements lock.Disk.
func (d *Disk) Freshen(lock.Hold) {}

// Restore implements lock.Disk.
func (d *Disk) Restore(_ context.Context, h lock.Hold) (lock.DirectoryID, bool, error) {
	return h.Directory, false, nil
}
