package journal

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// BenchmarkPair acquires and releases locks of different names. The served tree is on the file system of
// FTPLOCKD_BENCH_DIR, or that of temporary files.
func BenchmarkPair(b *testing.B) {
	for _, directories := range []bool{false, true} {
		for _, durable := range []bool{false, true} {
			for _, parallel := range []int{1, 64} {
				b.Run(fmt.Sprintf("directories=%v/durable=%v/parallel=%d", directories, durable, parallel), func(b *testing.B) {
					benchmarkPair(b, directories, durable, parallel)
				})
			}
		}
	}
}

func benchmarkPair(b *testing.B, directories, durable bool, parallel int) {
	s := newScene(b)
	if dir := os.Getenv("FTPLOCKD_BENCH_DIR"); dir != "" {
		root, err := os.MkdirTemp(dir, "bench")
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { os.RemoveAll(root) })
		s.tree.root = root
	}
	s.options = func(o *Options) {
		o.Durable, o.hooks.room = durable, roomAhead
		if !directories {
			o.FS = nil
		}
	}
	store := s.mustOpen()
	s.watch(store)
	hold := s.hold("ada")
	var worker atomic.Int32
	b.ReportAllocs()
	b.ResetTimer()
	turns := func(name lock.Name) error {
		token, err := s.commit(store, name, 0, hold)
		if err == nil {
			_, err = s.commit(store, name, token)
		}
		return err
	}
	if parallel == 1 {
		for b.Loop() {
			if err := turns("/0_lock"); err != nil {
				b.Fatal(err)
			}
		}
		return
	}
	b.SetParallelism(parallel / 2)
	b.RunParallel(func(pb *testing.PB) {
		name := lock.Name(fmt.Sprintf("/%d_lock", worker.Add(1)))
		for pb.Next() {
			if err := turns(name); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func BenchmarkLine(b *testing.B) {
	s := newScene(b)
	l := line{
		Event: lock.CauseAcquire, Name: "/locks/phone_lock", Token: 42, At: s.clock.Now(), By: ada,
		Holds: []lock.Hold{s.hold("ada")},
	}
	text := appendLine(nil, &l)
	b.Run("append", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		var buffer []byte
		for b.Loop() {
			buffer = appendLine(buffer[:0], &l)
		}
	})
	b.Run("scan", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		var scan scanner
		for b.Loop() {
			if _, err := scan.parse(text[:len(text)-1]); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("parse", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			if _, err := parseLine(text[:len(text)-1]); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkOpen starts with so many locks held.
func BenchmarkOpen(b *testing.B) {
	for _, n := range []int{1000, 20_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := newScene(b)
			s.options = func(o *Options) { o.FS, o.Durable = nil, false }
			store := s.mustOpen()
			for i := range n {
				s.acquire(store, lock.Name(fmt.Sprintf("/%d_lock", i)), "ada")
			}
			for b.Loop() {
				store = s.restart(store)
			}
		})
	}
}

// BenchmarkStart opens a store with so many locks and their directories, spread over some parents. The served tree is on
// the file system of FTPLOCKD_BENCH_DIR, or that of temporary files.
func BenchmarkStart(b *testing.B) {
	const n = 100_000
	for _, parents := range []int{1, 100} {
		b.Run(fmt.Sprintf("parents=%d", parents), func(b *testing.B) {
			s := newScene(b)
			root, err := os.MkdirTemp(os.Getenv("FTPLOCKD_BENCH_DIR"), "bench")
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { os.RemoveAll(root) })
			tree, err := files.Open(filepath.Join(root, "files"), files.Options{State: filepath.Join(root, "uploads")})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { tree.Close() })
			s.options = func(o *Options) { o.FS, o.Root, o.Durable = tree, filepath.Join(root, "files"), false }
			store := s.mustOpen()
			for i := range parents {
				if err := tree.MkdirAll(fmt.Sprintf("/locks/%d", i), 0o755); err != nil {
					b.Fatal(err)
				}
			}
			for i := range n {
				s.acquire(store, lock.Name(fmt.Sprintf("/locks/%d/%d_lock", i%parents, i)), "ada")
			}
			b.ReportAllocs()
			for b.Loop() {
				store = s.restart(store)
			}
		})
	}
}
