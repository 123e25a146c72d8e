package lock

import (
	"context"
	"testing"
)

// nullLog drops everything.
type nullLog struct{ memoryLog }

func (*nullLog) Append([]Record) Position { return 0 }

func BenchmarkPair(b *testing.B) {
	t, err := NewTable(context.Background(), Options{
		Log: &nullLog{}, Clock: NewSystemClock(), Rules: mustRules(Rule{Match: "/locks/**", MaxAge: 86400e9, MaxIdle: 1800e9}),
	})
	if err != nil {
		b.Fatal(err)
	}
	s := t.Open(Owner{Account: "ftp", Address: "127.0.0.1"})
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if _, _, _, err := s.AcquireOrWait(ctx, "/locks/a", nil); err != nil {
			b.Fatal(err)
		}
		if err := s.Release(ctx, "/locks/a"); err != nil {
			b.Fatal(err)
		}
	}
}
