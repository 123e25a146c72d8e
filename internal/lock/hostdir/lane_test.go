package hostdir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/afero"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// openDirectory is a Directory of which only Close works.
type openDirectory struct {
	Directory
	closed *atomic.Int32
}

func (o openDirectory) Close() error { o.closed.Add(1); return nil }

var _ afero.File = openDirectory{}

// testLanes returns lanes that count how often they open a directory, in opened, and close it.
func testLanes(apart bool) (l *lanes, opened, closed *atomic.Int32) {
	opened, closed = new(atomic.Int32), new(atomic.Int32)
	return newLanes(func(n lock.Name) (*parent, error) {
		opened.Add(1)
		if n == "/none" {
			return nil, fs.ErrNotExist
		}
		return &parent{Directory: openDirectory{nil, closed}, name: n}, nil
	}, apart), opened, closed
}

func nothing(*parent) error { return nil }

func TestOperationsInADirectoryRunOneAtATimeAndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, opened, closed := testLanes(false)
		var order []int
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				err := l.run(t.Context(), "/a", func(*parent) error {
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
		if err := l.run(t.Context(), "/b", nothing); err != nil { // nobody is in the way there
			t.Error(err)
		}
		wg.Wait()
		if !l.close(time.Minute) || l.busy("/a") || l.busy("/b") {
			t.Error("still busy")
		}
		for i, got := range order {
			if got != i {
				t.Fatalf("order %v", order)
			}
		}
		if opened.Load() != 3 || closed.Load() != 3 { // of /a for the first and for all that waited, and of /b
			t.Errorf("opened %d times, closed %d times", opened.Load(), closed.Load())
		}
	})
}

func TestACallerThatGivesUp(t *testing.T) {
	for _, apart := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l, _, _ := testLanes(apart)
			ran := make(map[string]bool)
			try := func(what string, ctx context.Context) error {
				return l.run(ctx, "/a", func(*parent) error {
					ran[what] = true
					time.Sleep(time.Minute)
					return nil
				})
			}
			go try("first", context.Background())
			synctest.Wait()
			soon, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := try("queued", soon); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("in the queue: %v", err)
			}
			time.Sleep(time.Hour)
			soon, cancel = context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := try("begun", soon); errors.Is(err, context.DeadlineExceeded) != apart {
				t.Errorf("apart %v, after it began: %v", apart, err)
			}
			if !l.close(time.Hour) {
				t.Error("still busy")
			}
			if !ran["first"] || ran["queued"] || !ran["begun"] {
				t.Errorf("ran %v", ran)
			}
		})
	}
}

func TestAPanicReachesItsCallerAndBlocksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _, closed := testLanes(false)
		var wg sync.WaitGroup
		for range 3 { // the first runs it by itself, the others have it run
			wg.Go(func() {
				defer func() {
					if recover() != "broken" {
						t.Error("no panic")
					}
				}()
				l.run(t.Context(), "/a", func(*parent) error {
					time.Sleep(time.Second)
					panic("broken")
				})
			})
			synctest.Wait()
		}
		wg.Wait()
		if err := l.run(t.Context(), "/a", nothing); err != nil || closed.Load() != 3 {
			t.Errorf("%v, closed %d times", err, closed.Load())
		}
	})
}

func TestADirectoryThatCannotBeOpened(t *testing.T) {
	for _, apart := range []bool{false, true} {
		l, _, _ := testLanes(apart)
		if err := l.run(t.Context(), "/none", nothing); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
		if !l.close(time.Minute) {
			t.Error("an operation is under way")
		}
		if err := l.run(t.Context(), "/a", nothing); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("after close: %v", err)
		}
	}
}
