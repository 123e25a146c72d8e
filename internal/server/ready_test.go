package server

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestHangingDiskBlocksOneGoroutineAndNoReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var askers sync.WaitGroup
		var checks atomic.Int32
		free := make(chan error)
		r := &readiness{check: func() error { checks.Add(1); return <-free }}
		for range 5 {
			askers.Go(func() {
				before := time.Now()
				if err := r.await(t.Context()); err != errNoAnswer || time.Since(before) != readyWithin {
					t.Errorf("%v after %v", err, time.Since(before))
				}
			})
		}
		askers.Wait()
		if checks.Load() != 1 {
			t.Errorf("%d checks at a time", checks.Load())
		}
		full := errors.New("full")
		for _, want := range []error{nil, full} { // the check that hung, and a new one
			askers.Go(func() {
				if err := r.await(t.Context()); err != want {
					t.Errorf("%v, want %v", err, want)
				}
			})
			synctest.Wait()
			free <- want
			askers.Wait()
		}
	})
}
