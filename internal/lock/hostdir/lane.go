package hostdir

import (
	"fmt"
	"sync"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// lanes run the changes of directories: in each parent directory one at a time, in the order of their calls.
//
// The kernel locks a directory while it makes or removes a name in it, and threads that wait for that lock spin. So one goroutine
// works for all callers of one directory. It opens the directory once for the changes that wait, and ends when none waits. A caller
// alone makes its change itself: to start a goroutine costs three more futex calls.
type lanes struct {
	open func(lock.Name) (*parent, error)

	mu      sync.Mutex
	waiting map[lock.Name][]*op // by the parent directory; a caller or a goroutine works in each of them
}

// op is a change of a directory.
type op struct {
	do       func(*parent) error
	ended    chan struct{}
	err      error // after ended
	panicked any   // after ended
}

// run opens the directory, calls do, and returns the first error of the two. It passes a panic of do on to the caller.
func (l *lanes) run(dir lock.Name, do func(*parent) error) error {
	o := &op{do: do, ended: make(chan struct{})}
	l.mu.Lock()
	waiting, busy := l.waiting[dir]
	l.waiting[dir] = append(waiting, o)
	l.mu.Unlock()
	if !busy {
		l.work(dir, l.next(dir))
		if batch := l.next(dir); len(batch) > 0 {
			go l.serve(dir, batch) // their callers wait
		}
	}
	<-o.ended
	if o.panicked != nil {
		panic(o.panicked)
	}
	return o.err
}

// serve runs changes until none waits.
func (l *lanes) serve(dir lock.Name, batch []*op) {
	for ; len(batch) > 0; batch = l.next(dir) {
		l.work(dir, batch)
	}
}

// work opens the directory and runs some changes.
func (l *lanes) work(dir lock.Name, batch []*op) {
	p, err := l.opened(dir)
	if err == nil {
		defer p.Close()
	}
	for _, o := range batch {
		o.run(p, err)
	}
}

// opened opens the directory. It makes an error of a panic: the callers that wait must return, and later ones must not wait.
func (l *lanes) opened(dir lock.Name) (p *parent, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("open %s: panic: %v", dir, cause)
		}
	}()
	return l.open(dir)
}

// next returns the changes that wait. If there are none, the caller must return.
func (l *lanes) next(dir lock.Name) []*op {
	l.mu.Lock()
	defer l.mu.Unlock()
	batch := l.waiting[dir]
	if len(batch) == 0 {
		delete(l.waiting, dir)
		return nil
	}
	l.waiting[dir] = nil
	return batch
}

// run makes the change, unless the directory could not be opened.
func (o *op) run(p *parent, err error) {
	defer close(o.ended)
	defer func() { o.panicked = recover() }()
	if o.err = err; err == nil {
		o.err = o.do(p)
	}
}
