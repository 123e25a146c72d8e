package lock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

func benchTable(b *testing.B, c *lock.Contention) (*lock.Table, *locktest.FakeClock) {
	b.Helper()
	clock := locktest.NewFakeClock()
	rules, err := lock.NewRules([]lock.Rule{{Match: "/locks/**", MaxAge: 10 * time.Minute, Contention: c}})
	if err != nil {
		b.Fatal(err)
	}
	table, err := lock.NewTable(ctx, lock.Options{Store: locktest.NewMemory(), Clock: clock, Rules: rules, Generation: 1})
	if err != nil {
		b.Fatal(err)
	}
	return table, clock
}

func benchAcquire(b *testing.B, s *lock.Session, n lock.Name) {
	b.Helper()
	if _, err := s.Acquire(ctx, n); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkExpireOne is the end of one lock by its age among many that live on: it must not
// cost more with more of those.
func BenchmarkExpireOne(b *testing.B) {
	for _, held := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("held=%d", held), func(b *testing.B) {
			table, clock := benchTable(b, nil)
			s, short := table.Open(lock.Owner{Account: "a"}), table.Open(lock.Owner{Account: "b"})
			for i := range held {
				benchAcquire(b, s, lock.Name(fmt.Sprintf("/locks/%d", i)))
			}
			short.SetAge(time.Nanosecond)
			b.ReportAllocs()
			for b.Loop() {
				benchAcquire(b, short, "/locks/short")
				clock.Advance(time.Nanosecond)
				table.Expire(ctx)
			}
		})
	}
}

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
	table, _ := benchTable(b, &lock.Contention{Wait: 24 * time.Hour, Queue: queue, QueueHold: 15 * time.Second})
	holder := table.Open(lock.Owner{Account: "holder", Address: "192.0.2.1"})
	open := func(i int) *lock.Session {
		return table.Open(lock.Owner{Account: fmt.Sprint("a", i), Address: fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)})
	}
	benchAcquire(b, holder, "/locks/x")
	for i := range n {
		switch many {
		case "names":
			benchAcquire(b, holder, lock.Name(fmt.Sprintf("/locks/%d", i)))
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
