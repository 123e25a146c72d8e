package hostdir

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/afero"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// openDirectory is a Directory with a working Close only.
type openDirectory struct {
	Directory
	closed *atomic.Int32
}

func (o openDirectory) Close() error { o.closed.Add(1); return nil }

var _ afero.File = openDirectory{}

// testLanes returns lanes that count how often they open and close a directory.
func testLanes() (l *lanes, opened, closed *atomic.Int32) {
	opened, closed = new(atomic.Int32), new(atomic.Int32)
	open := func(n lock.Name) (*parent, error) {
		opened.Add(1)
		return &parent{Directory: openDirectory{nil, closed}, name: n}, nil
	}
	return &lanes{open: open, waiting: make(map[lock.Name][]*op)}, opened, closed
}

func nothing(*parent) error { return nil }

func TestOperationsInADirectoryRunOneAtATimeAndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, opened, closed := testLanes()
		var order []int
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				err := l.run("/a", func(*parent) error {
					time.Sleep(time.Second)
					order = append(order, i)
					return fmt.Errorf("error %d", i)
				})
				if err == nil || err.Error() != fmt.Sprintf("error %d", i) {
					t.Errorf("operation %d: %v", i, err)
				}
			})
			synctest.Wait()
		}
		if err := l.run("/b", nothing); err != nil { // another directory does not wait
			t.Error(err)
		}
		wg.Wait()
		if synctest.Wait(); len(l.waiting) > 0 {
			t.Error("still busy")
		}
		for i, got := range order {
			if got != i {
				t.Fatalf("order %v", order)
			}
		}
		if opened.Load() != 3 || closed.Load() != 3 { // /a for the first change, /a for the waiting ones, and /b
			t.Errorf("opened %d times, closed %d times", opened.Load(), closed.Load())
		}
	})
}

func TestAPanicReachesItsCallerAndBlocksNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _, closed := testLanes()
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				defer func() {
					if recover() != "broken" {
						t.Error("no panic")
					}
				}()
				l.run("/a", func(*parent) error {
					time.Sleep(time.Second)
					panic("broken")
				})
			})
			synctest.Wait()
		}
		wg.Wait()
		if err := l.run("/a", nothing); err != nil {
			t.Error(err)
		}
		if synctest.Wait(); closed.Load() != 3 {
			t.Errorf("closed %d times", closed.Load())
		}
	})
}

func TestAPanicWhileADirectoryIsOpenedBlocksNoCaller(t *testing.T) {
	l, _, _ := testLanes()
	works := l.open
	l.open = func(lock.Name) (*parent, error) { panic("broken") }
	if err := l.run("/a", nothing); err == nil {
		t.Error("no error")
	}
	l.open = works
	if err := l.run("/a", nothing); err != nil {
		t.Error(err)
	}
}
