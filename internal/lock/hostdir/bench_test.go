package hostdir_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// BenchmarkPair makes and removes the directory of a lock, in one directory for all goroutines.
func BenchmarkPair(b *testing.B) {
	for _, callers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			s := newScene(b)
			var last atomic.Int64
			b.ReportAllocs()
			b.SetParallelism(callers)
			b.RunParallel(func(pb *testing.PB) {
				n := lock.Name(fmt.Sprintf("/locks/%d", last.Add(1)))
				for pb.Next() {
					id, err := s.Make(b.Context(), n)
					if err != nil {
						b.Error(err)
						return
					}
					if _, err := s.Remove(b.Context(), lock.Hold{Name: n, Directory: id}, lock.CauseRelease); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
