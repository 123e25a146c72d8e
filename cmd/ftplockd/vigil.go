package main

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// vigil keeps Go's system monitor from being put to sleep after each command of a quiet server and woken for the next one. That is what
// the scheduler of go1.26 does when all its processors (in Go's sense, GOMAXPROCS of them) are idle; the monitor then looks around
// every 20 us for some time. On one connection it took a quarter of the server's time. So while commands come, one more
// processor is made to look busy: by a thread that sleeps in the kernel without the scheduler's knowing.
//
// The zero value rests.
type vigil struct {
	commands atomic.Uint64
	kept     atomic.Bool
	wake     chan struct{}
}

const (
	// watchTime is how long the thread sleeps at a time. What has to stop all goroutines (the garbage collector) interrupts it with a
	// signal; where signals are switched off, it waits for so long.
	watchTime = 5 * time.Millisecond
	// calmWatches without a command end it: a server without work has no use for it, and wakes nobody.
	calmWatches = 20
)

func newVigil() *vigil { return &vigil{wake: make(chan struct{}, 1)} }

// command is to be called for each command.
func (v *vigil) command() {
	v.commands.Add(1)
	if !v.kept.Load() && v.kept.CompareAndSwap(false, true) {
		v.wake <- struct{}{} // there is room: it was emptied before kept became false
	}
}

// run keeps it until ctx ends.
func (v *vigil) run(ctx context.Context) {
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1)
	defer func() { runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) - 1) }()
	for {
		select {
		case <-ctx.Done():
			return
		case <-v.wake:
			v.keep(ctx)
		}
		v.kept.Store(false)
	}
}

// keep returns when no command has come for some time.
func (v *vigil) keep(ctx context.Context) {
	before := v.commands.Load()
	for calm := 0; calm < calmWatches && ctx.Err() == nil; calm++ {
		pause := unix.NsecToTimespec(watchTime.Nanoseconds())
		_, _, _ = unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, uintptr(unsafe.Pointer(&pause)), 0, 0, 0)
		runtime.Gosched() // a loop of nothing but raw calls could not be stopped
		if now := v.commands.Load(); now != before {
			before, calm = now, -1
		}
	}
}
