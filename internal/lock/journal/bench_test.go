package journal

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// The state directory is on the file system of FTPLOCKD_BENCH_DIR, or that of temporary files.
func newBenchScene(b *testing.B) *scene {
	s := newScene(b)
	dir, err := os.MkdirTemp(os.Getenv("FTPLOCKD_BENCH_DIR"), "bench")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	s.state = filepath.Join(dir, "state")
	s.options = func(o *Options) { o.Durable, o.MaxSize = false, DefaultMaxSize }
	return s
}

// BenchmarkStart opens a store with so many locks held.
func BenchmarkStart(b *testing.B) {
	s := newBenchScene(b)
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
	s := newBenchScene(b)
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
