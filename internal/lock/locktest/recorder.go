package locktest

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
)

// recorder is a testing.TB whose failures stay its own.
type recorder struct {
	testing.TB
	mu     sync.Mutex
	failed bool
	said   []string
}

// run runs f as a test is run: FailNow ends it. A panic of f counts as a failure.
func (r *recorder) run(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				r.Error("panic:", p)
			}
		}()
		f()
	}()
	<-done
}

func (r *recorder) say(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = append(r.said, text)
}

func (r *recorder) Fail() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) FailNow() {
	r.Fail()
	runtime.Goexit()
}

func (r *recorder) Helper()                   {}
func (r *recorder) Log(args ...any)           { r.say(fmt.Sprintln(args...)) }
func (r *recorder) Logf(f string, a ...any)   { r.say(fmt.Sprintf(f, a...)) }
func (r *recorder) Error(args ...any)         { r.Log(args...); r.Fail() }
func (r *recorder) Errorf(f string, a ...any) { r.Logf(f, a...); r.Fail() }
func (r *recorder) Fatal(args ...any)         { r.Log(args...); r.FailNow() }
func (r *recorder) Fatalf(f string, a ...any) { r.Logf(f, a...); r.FailNow() }
