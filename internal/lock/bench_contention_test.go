package lock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

func contendedTable(b *testing.B) *lock.Table {
	b.Helper()
	rules, err := lock.NewRules([]lock.Rule{{Match: "/locks/**", Contention: &lock.Contention{Wait: 24 * time.Hour, Queue: lock.QueueFair, QueueHold: 15 * time.Second}}})
	if err != nil {
		b.Fatal(err)
	}
	table, err := lock.NewTable(context.Background(), lock.Options{Store: &nothing{}, Clock: lock.NewSystemClock(), Rules: rules, Generation: 1})
	if err != nil {
		b.Fatal(err)
	}
	return table
}

// BenchmarkHandOver is a release, the next waiter's Poll, and the last holder's new place at the end.
func BenchmarkHandOver(b *testing.B) {
	ctx := context.Background()
	for _, waiters := range []int{1, 16, 1000} {
		b.Run(fmt.Sprintf("waiters=%d", waiters), func(b *testing.B) {
			table := contendedTable(b)
			sessions := make([]*lock.Session, waiters+1)
			queue := make([]*lock.Waiting, waiters+1)
			for i := range sessions {
				sessions[i] = table.Open(lock.Owner{Account: "a"})
				var err error
				if _, queue[i], err = sessions[i].AcquireOrWait(ctx, "/locks/x", func() {}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			holder := 0
			for b.Loop() {
				next := (holder + 1) % len(sessions)
				if err := sessions[holder].Release(ctx, "/locks/x"); err != nil {
					b.Fatal(err)
				}
				if _, over, err := queue[next].Poll(ctx); !over || err != nil {
					b.Fatal(over, err)
				}
				_, queue[holder], _ = sessions[holder].AcquireOrWait(ctx, "/locks/x", func() {})
				holder = next
			}
		})
	}
}
