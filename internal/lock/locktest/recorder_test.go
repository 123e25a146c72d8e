package locktest

import (
	"runtime"
	"sync/atomic"
	"testing"
)

// recorder is a testing.TB that only notes whether something failed.
type recorder struct {
	testing.TB
	failed atomic.Bool
}

// run runs f as a test is run: FailNow ends it. A panic of f counts as a failure.
func (r *recorder) run(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if recover() != nil {
				r.Fail()
			}
		}()
		f()
	}()
	<-done
}

func (r *recorder) Fail()        { r.failed.Store(true) }
func (r *recorder) Failed() bool { return r.failed.Load() }

func (r *recorder) FailNow() {
	r.Fail()
	runtime.Goexit()
}

func (r *recorder) Helper()               {}
func (r *recorder) Log(...any)            {}
func (r *recorder) Logf(string, ...any)   {}
func (r *recorder) Error(...any)          { r.Fail() }
func (r *recorder) Errorf(string, ...any) { r.Fail() }
func (r *recorder) Fatal(...any)          { r.FailNow() }
func (r *recorder) Fatalf(string, ...any) { r.FailNow() }
