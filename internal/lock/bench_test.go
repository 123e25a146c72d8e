package lock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

// BenchmarkFailedTry is MKD of a held lock, with so many names held, clients that wait for it, and clients that tried for
// it. It must not cost more with more of them.
func BenchmarkFailedTry(b *testing.B) {
	for _, queue := range []lock.QueuePolicy{lock.QueueOff, lock.QueueFair} {
		for _, many := range []string{"names", "waiters", "tried"} {
			for _, n := range []int{10, 1_000, 100_000} {
				b.Run(fmt.Sprintf("queue=%s/%s=%d", queue, many, n), func(b *testing.B) { benchmarkFailedTry(b, queue, many, n) })
			}
		}
	}
}

func benchmarkFailedTry(b *testing.B, queue lock.QueuePolicy, many string, n int) {
	rules, err := lock.NewRules([]lock.Rule{{Match: "/locks/**", Contention: &lock.Contention{Wait: 24 * time.Hour, Queue: queue, QueueHold: 15 * time.Second}}})
	if err != nil {
		b.Fatal(err)
	}
	table, err := lock.NewTable(ctx, lock.Options{Store: locktest.NewMemory(), Clock: lock.NewSystemClock(), Rules: rules, Generation: 1})
	if err != nil {
		b.Fatal(err)
	}
	holder := table.Open(lock.Owner{Account: "holder", Address: "192.0.2.1"})
	acquire := func(name lock.Name) {
		if _, err := holder.Acquire(ctx, name); err != nil {
			b.Fatal(err)
		}
	}
	open := func(i int) *lock.Session {
		return table.Open(lock.Owner{Account: fmt.Sprint("a", i), Address: fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)})
	}
	acquire("/locks/x")
	for i := range n {
		switch many {
		case "names":
			acquire(lock.Name(fmt.Sprintf("/locks/%d", i)))
		case "waiters":
			if _, w, err := open(i).AcquireOrWait(ctx, "/locks/x", func() {}); w == nil {
				b.Fatal(err)
			}
		case "tried":
			_, _ = open(i).Acquire(ctx, "/locks/x")
		}
	}
	s := open(1 << 20)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Acquire(ctx, "/locks/x"); err == nil {
			b.Fatal("granted")
		}
	}
}
