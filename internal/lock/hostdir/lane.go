package hostdir

import (
	"context"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// lanes runs operations in directories: one at a time in each directory, in the order in which they came.
//
// The kernel locks a directory while it makes or removes a name in it, and threads that wait for it spin. So if
// several callers want one directory, a goroutine works for all of them, and ends when nobody waits. A caller
// alone runs its operation itself.
type lanes struct {
	open  func(lock.Name) (*parent, error)
	apart bool // always run on a goroutine, which the caller may leave: the operation may hang

	mu      sync.Mutex
	waiting map[lock.Name][]*op // of each directory in which an operation is under way
	closed  bool
	running sync.WaitGroup // for each directory in waiting; Add with mu
}

// op is an operation that waits for its turn.
type op struct {
	do       func(*parent) error
	ended    chan struct{}
	err      error // after ended
	panicked any   // after ended
}

func newLanes(open func(lock.Name) (*parent, error), apart bool) *lanes {
	return &lanes{open: open, apart: apart, waiting: make(map[lock.Name][]*op)}
}

// run opens the directory, calls do, and returns the first error of the two. If ctx ends before the turn of do, or at any
// time in lanes that run apart, it returns the error of ctx; in the second case do may go on. After close it returns fs.ErrClosed.
func (l *lanes) run(ctx context.Context, dir lock.Name, do func(*parent) error) error {
	o := &op{do: do, ended: make(chan struct{})}
	direct, err := l.enter(ctx, dir, o)
	switch {
	case err != nil:
		return err
	case direct:
		defer l.leave(dir)
		p, err := l.open(dir)
		if err != nil {
			return err
		}
		defer p.Close()
		return do(p)
	}
	select {
	case <-o.ended:
	case <-ctx.Done():
		if l.withdraw(dir, o) || l.apart {
			return ctx.Err()
		}
		<-o.ended
	}
	if o.panicked != nil {
		panic(o.panicked)
	}
	return o.err
}

// enter queues the operation, or returns true if the caller is to run it itself and then call leave.
func (l *lanes) enter(ctx context.Context, dir lock.Name, o *op) (direct bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false, fs.ErrClosed
	}
	queue, busy := l.waiting[dir]
	if busy {
		l.waiting[dir] = append(queue, o)
		return false, nil
	}
	l.running.Add(1)
	l.waiting[dir] = nil
	if l.apart {
		go l.serve(dir, []*op{o})
	}
	return !l.apart, nil
}

// leave has a goroutine run the operations that wait.
func (l *lanes) leave(dir lock.Name) {
	if batch := l.next(dir); len(batch) > 0 {
		go l.serve(dir, batch)
	}
}

// serve runs operations until none waits, and opens the directory once for all that wait at a time.
func (l *lanes) serve(dir lock.Name, batch []*op) {
	for ; len(batch) > 0; batch = l.next(dir) {
		p, err := l.open(dir)
		for _, o := range batch {
			o.run(p, err)
		}
		if err == nil {
			p.Close()
		}
	}
}

// next returns the operations that wait. If there are none, the work in the directory is over.
func (l *lanes) next(dir lock.Name) []*op {
	l.mu.Lock()
	defer l.mu.Unlock()
	batch := l.waiting[dir]
	l.waiting[dir] = nil
	if len(batch) == 0 {
		delete(l.waiting, dir)
		l.running.Done()
	}
	return batch
}

// run runs the operation, unless the directory could not be opened. A panic is its caller's.
func (o *op) run(p *parent, err error) {
	defer close(o.ended)
	defer func() { o.panicked = recover() }()
	if o.err = err; err == nil {
		o.err = o.do(p)
	}
}

// withdraw removes an operation that still waits for its turn, and reports whether it did.
func (l *lanes) withdraw(dir lock.Name, o *op) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.waiting[dir], o)
	if i >= 0 {
		l.waiting[dir] = slices.Delete(l.waiting[dir], i, i+1)
	}
	return i >= 0
}

// busy reports whether an operation is under way in the directory.
func (l *lanes) busy(dir lock.Name) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, busy := l.waiting[dir]
	return busy
}

// close refuses later operations, and waits until none is under way; false if that takes longer than bound.
func (l *lanes) close(bound time.Duration) bool {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	idle := make(chan struct{})
	go func() {
		l.running.Wait()
		close(idle)
	}()
	select {
	case <-idle:
		return true
	case <-time.After(bound):
		return false
	}
}
