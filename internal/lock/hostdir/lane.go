package hostdir

import (
	"io/fs"
	"sync"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// lanes runs operations in directories: one at a time in each directory, in the order in which they came.
//
// The kernel locks a directory while it makes or removes a name in it, and threads that wait for it spin. So if
// several callers want one directory, a goroutine works for all of them, and ends when no caller waits. A caller
// alone runs its operation itself.
type lanes struct {
	open func(lock.Name) (*parent, error)

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

// run opens the directory, calls do, and returns the first error of the two. A panic of do is the caller's. After close run returns
// fs.ErrClosed.
func (l *lanes) run(dir lock.Name, do func(*parent) error) error {
	o := &op{do: do, ended: make(chan struct{})}
	l.mu.Lock()
	queue, busy := l.waiting[dir]
	switch {
	case l.closed:
		l.mu.Unlock()
		return fs.ErrClosed
	case busy:
		l.waiting[dir] = append(queue, o)
	default:
		l.waiting[dir] = nil
		l.running.Add(1)
	}
	l.mu.Unlock()
	if !busy {
		l.work(dir, []*op{o})
		if rest := l.next(dir); len(rest) > 0 {
			go l.serve(dir, rest)
		}
	}
	<-o.ended
	if o.panicked != nil {
		panic(o.panicked)
	}
	return o.err
}

// serve runs operations until none waits.
func (l *lanes) serve(dir lock.Name, batch []*op) {
	for ; len(batch) > 0; batch = l.next(dir) {
		l.work(dir, batch)
	}
}

// work opens the directory once for some operations, and runs them.
func (l *lanes) work(dir lock.Name, batch []*op) {
	p, err := l.open(dir)
	if err == nil {
		defer p.Close()
	}
	for _, o := range batch {
		o.run(p, err)
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

// run runs the operation, unless the directory could not be opened.
func (o *op) run(p *parent, err error) {
	defer close(o.ended)
	defer func() { o.panicked = recover() }()
	if o.err = err; err == nil {
		o.err = o.do(p)
	}
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
