package journal

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// ErrFailed is matched by every error after a write or a sync failed for another reason than a full disk. The kernel may drop what it
// could not write, and report the next sync as a success. So the log believes no further one, and the process must end.
var ErrFailed = errors.New("the disk has failed the journal")

// ErrGone is matched, beside ErrFailed, if the journal was removed or replaced while the server ran: records that are synced to it
// are lost, and another server may use the state directory.
var ErrGone = errors.New("it was removed or replaced")

// failure is the first error that a log cannot survive.
type failure struct {
	once sync.Once
	over chan struct{} // closed then
	err  error
	mark string // a file with which the next start trusts nothing in the page cache
}

// set makes the log fail, and returns the error of the first failure.
func (f *failure) set(err error) error {
	f.once.Do(func() {
		f.err = fmt.Errorf("%w: %w", ErrFailed, bare(err))
		if !errors.Is(err, ErrGone) {
			_ = os.WriteFile(f.mark, nil, 0o600) // the disk may refuse that as well
		}
		close(f.over)
	})
	return f.err
}

// get returns the failure, or nil.
func (f *failure) get() error {
	select {
	case <-f.over:
		return f.err
	default:
		return nil
	}
}

// uncertain returns the error of Wait.
func uncertain(err error) error { return fmt.Errorf("%w: %w", lock.ErrUncertain, err) }
