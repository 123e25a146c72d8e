package journal

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// BenchmarkPair acquires and releases locks of different names. The state directory is on the file system of
// FTPLOCKD_BENCH_DIR, or that of temporary files.
func BenchmarkPair(b *testing.B) {
	for _, durable := range []bool{false, true} {
		for _, parallel := range []int{1, 64} {
			b.Run(fmt.Sprintf("durable=%v/parallel=%d", durable, parallel), func(b *testing.B) {
				s := newBenchScene(b, durable)
				store := s.mustOpen()
				hold := s.Hold("ada")
				var worker atomic.Int32
				b.ReportAllocs()
				b.SetParallelism(max(parallel/2, 1))
				b.RunParallel(func(pb *testing.PB) {
					n := worker.Add(1)
					name := lock.Name(fmt.Sprintf("/%d_lock", n))
					for pb.Next() && int(n) <= parallel {
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
}

func newBenchScene(b *testing.B, durable bool) *scene {
	s := newScene(b)
	dir, err := os.MkdirTemp(os.Getenv("FTPLOCKD_BENCH_DIR"), "bench")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	s.state = filepath.Join(dir, "state")
	s.options = func(o *Options) { o.Durable, o.MaxSize = durable, DefaultMaxSize }
	return s
}

// BenchmarkStart opens a store with so many locks held.
func BenchmarkStart(b *testing.B) {
	s := newBenchScene(b, false)
	store := s.mustOpen()
	for i := range 100_000 {
		s.Acquire(store, lock.Name(fmt.Sprintf("/locks/%d_lock", i)), "ada")
	}
	b.ReportAllocs()
	for b.Loop() {
		store = s.restart(store)
	}
}

// BenchmarkHistory asks for the history of one lock among a gibibyte of others.
func BenchmarkHistory(b *testing.B) {
	s := newBenchScene(b, false)
	store := s.mustOpen()
	s.Release(store, "/locks/demo", s.Acquire(store, "/locks/demo", "ada"))
	for i := 0; len(s.rotated()) == 0; i++ {
		name := lock.Name(fmt.Sprintf("/locks/job-%d", i%1000))
		s.Release(store, name, s.Acquire(store, name, "ada"))
	}
	s.Release(store, "/locks/demo", s.Acquire(store, "/locks/demo", "ada"))
	one, err := os.ReadFile(s.rotated()[0])
	if err != nil {
		b.Fatal(err)
	}
	total := int64(len(one))
	for i := 1; total < 1<<30; i++ { // others like it, in which nothing is about that lock
		other := bytes.ReplaceAll(one, []byte("/locks/demo"), []byte("/locks/work"))
		if err := os.WriteFile(filepath.Join(stateDir(s.state).archive(), fmt.Sprintf("%020d.jsonl", i)), other, 0o600); err != nil {
			b.Fatal(err)
		}
		total += int64(len(one))
	}
	b.SetBytes(total)
	var longest time.Duration
	for b.Loop() {
		began := time.Now()
		if got := s.causes("/locks/demo"); len(got) != 4 {
			b.Fatalf("got %q", got)
		}
		longest = max(longest, time.Since(began))
	}
	b.ReportMetric(longest.Seconds(), "longest-s")
}
