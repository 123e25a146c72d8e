package lock_test

import (
	"context"
	"fmt"
	"iter"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

// nothing is a store that keeps nothing: what is left is the table's own cost.
type nothing struct{ next atomic.Uint64 }

func (s *nothing) Commit(context.Context, lock.Change) (lock.Token, error) {
	return lock.Token(s.next.Add(1)), nil
}
func (s *nothing) Get(_ context.Context, n lock.Name) (lock.Record, error) {
	return lock.Record{Name: n}, nil
}
func (s *nothing) All(context.Context) iter.Seq2[lock.Record, error] {
	return func(func(lock.Record, error) bool) {}
}
func (s *nothing) Watch(context.Context) iter.Seq[lock.Event] { return func(func(lock.Event) bool) {} }

func defaultRules(tb testing.TB) *lock.Rules {
	tb.Helper()
	rules, err := lock.NewRules([]lock.Rule{
		{Match: "/locks/**", MaxAge: 10 * time.Minute},
		{Match: "**/*_lock", MaxAge: 10 * time.Minute},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return rules
}

func benchTable(b *testing.B, clock lock.Clock) *lock.Table {
	b.Helper()
	table, err := lock.NewTable(context.Background(), lock.Options{
		Store: &nothing{}, Clock: clock, Rules: defaultRules(b), Generation: 1,
	})
	if err != nil {
		b.Fatal(err)
	}
	return table
}

// BenchmarkExpireOne is the end of one lock by its age among many that live on: it must not
// cost more with more of those.
func BenchmarkExpireOne(b *testing.B) {
	ctx := context.Background()
	for _, held := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("held=%d", held), func(b *testing.B) {
			clock := locktest.NewFakeClock()
			table := benchTable(b, clock)
			s := table.Open(lock.Owner{Account: "a"})
			for i := range held {
				if _, err := s.Acquire(ctx, lock.Name(fmt.Sprintf("/locks/%d", i))); err != nil {
					b.Fatal(err)
				}
			}
			short := table.Open(lock.Owner{Account: "b"})
			short.SetAge(time.Nanosecond)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := short.Acquire(ctx, "/locks/short"); err != nil {
					b.Fatal(err)
				}
				clock.Advance(time.Nanosecond)
				table.Expire(ctx)
			}
		})
	}
}
