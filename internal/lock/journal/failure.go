package journal

import (
	"errors"
	"fmt"
	"sync"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// ErrFailed is matched by every error after a write or a sync failed for another reason than a full disk. The kernel may drop what it
// could not write, and report the next sync as a success. So no later sync proves anything, and the process must end.
var ErrFailed = errors.New("a write or sync of the journal failed")

// ErrGone is matched, in addition to ErrFailed, if another program removed or replaced the journal while the server ran. The records
// that were synced to it are lost, and another server may use the state directory.
var ErrGone = errors.New("it was removed or replaced")

// failure is the first error after which the log must not be used.
type failure struct {
	once   sync.Once
	failed chan struct{} // closed then
	err    error
}

// set makes the log fail, and returns the error of the first failure.
func (f *failure) set(err error) error {
	f.once.Do(func() {
		f.err = fmt.Errorf("%w: %w", ErrFailed, withoutPath(err))
		close(f.failed)
	})
	return f.err
}

// get returns the failure, or nil.
func (f *failure) get() error {
	select {
	case <-f.failed:
		return f.err
	default:
		return nil
	}
}

// uncertainError returns the error of Wait.
func uncertainError(err error) error { return fmt.Errorf("%w: %w", lock.ErrUncertain, err) }
