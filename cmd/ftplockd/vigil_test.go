package main

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"
)

// stand begins a vigil that ends with the test.
func stand(t *testing.T) *vigil {
	before := runtime.GOMAXPROCS(0)
	v := newVigil()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { v.run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		if got := runtime.GOMAXPROCS(0); got != before {
			t.Errorf("GOMAXPROCS %d is left, it was %d", got, before)
		}
	})
	return v
}

func TestAVigilIsKeptWhileCommandsCome(t *testing.T) {
	v := stand(t)
	for range 3 { // it begins anew after each rest
		for range 2 * calmWatches {
			v.command()
			time.Sleep(watchTime)
			if !v.kept.Load() {
				t.Fatal("it rests while commands come")
			}
		}
		for end := time.Now().Add(10 * time.Second); v.kept.Load(); time.Sleep(watchTime) {
			if time.Now().After(end) {
				t.Fatal("it is kept without commands")
			}
		}
	}
}

// Without the call of the scheduler in its loop this would not fail but stand still.
func TestAVigilHoldsNobodyUp(t *testing.T) {
	v := stand(t)
	v.command()
	for end := time.Now().Add(calmWatches * watchTime); time.Now().Before(end); runtime.GC() {
	}
	var others sync.WaitGroup
	for range 4 * runtime.GOMAXPROCS(0) {
		others.Go(func() { v.command(); runtime.Gosched() })
	}
	others.Wait()
}
