package hostdir

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// BenchmarkPair acquires and releases locks of different names in one directory. It is on the file system of FTPLOCKD_BENCH_DIR, or
// that of temporary files.
func BenchmarkPair(b *testing.B) {
	for _, parallel := range []int{1, 64} {
		b.Run(fmt.Sprintf("parallel=%d", parallel), func(b *testing.B) {
			s := newScene(b)
			dir, err := os.MkdirTemp(os.Getenv("FTPLOCKD_BENCH_DIR"), "bench")
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { os.RemoveAll(dir) })
			s.tree, s.state = newHostTree(dir), filepath.Join(s.tree.root, "state")
			store := s.mustOpen()
			hold := s.Hold("ada")
			var worker atomic.Int32
			b.SetParallelism(max(parallel/2, 1))
			b.RunParallel(func(pb *testing.PB) {
				name := lock.Name(fmt.Sprintf("/%d_lock", worker.Add(1)))
				for pb.Next() {
					token, err := s.Commit(store, name, 0, hold)
					if err == nil {
						_, err = s.Commit(store, name, token)
					}
					if err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
