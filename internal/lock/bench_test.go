package lock

import (
	"context"
	"fmt"
	"testing"
)

// nullLog drops everything.
type nullLog struct{ memoryLog }

func (*nullLog) Append([]Record) Position { return 0 }

// BenchmarkPair acquires and releases a shared lock, alone and beside other holders of it.
func BenchmarkPair(b *testing.B) {
	for _, holders := range []int{0, 1000} {
		b.Run(fmt.Sprintf("holders=%d", holders), func(b *testing.B) {
			t, err := NewTable(context.Background(), Options{
				Log: &nullLog{}, Clock: NewSystemClock(),
				Rules: mustRules(Rule{Match: "/locks/**", MaxAge: 86400e9, MaxIdle: 1800e9, Contention: &Contention{Shared: []string{"ftp"}}}),
			})
			if err != nil {
				b.Fatal(err)
			}
			ctx := context.Background()
			acquire := func(s *Session) {
				if _, _, _, err := s.AcquireOrWait(ctx, "/locks/a", nil); err != nil {
					b.Fatal(err)
				}
			}
			for range holders {
				acquire(t.Open(Owner{Account: "ftp", Address: "127.0.0.1"}))
			}
			s := t.Open(Owner{Account: "ftp", Address: "127.0.0.1"})
			b.ReportAllocs()
			for b.Loop() {
				acquire(s)
				if err := s.Release(ctx, "/locks/a"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// nullDisk makes and removes directories at once.
type nullDisk struct{ Disk }

func (nullDisk) Free(Name) bool                                  { return false }
func (nullDisk) Make(context.Context, Name) (DirectoryID, error) { return DirectoryID{Inode: 1}, nil }
func (nullDisk) Remove(context.Context, Hold, Cause) (string, error) {
	return "", nil
}

// BenchmarkPairWithDirectories acquires and releases a lock that has a directory.
func BenchmarkPairWithDirectories(b *testing.B) {
	t, err := NewTable(context.Background(), Options{
		Log: &nullLog{}, Disk: nullDisk{}, Clock: NewSystemClock(), Rules: mustRules(Rule{Match: "/locks/**", MaxAge: 86400e9, MaxIdle: 1800e9}),
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	s := t.Open(Owner{Account: "ftp", Address: "127.0.0.1"})
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
