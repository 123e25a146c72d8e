package files

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func benchTree(b *testing.B) (*Tree, string) {
	base := os.Getenv("FILES_BENCH_DIR")
	if base == "" {
		base = b.TempDir()
	}
	base, err := os.MkdirTemp(base, "bench")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(base) })
	root := filepath.Join(base, "root")
	t, err := Open(root, Options{State: filepath.Join(base, "state"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { t.Close() })
	if err := t.MkdirAll("/locks/a/b/c", 0o755); err != nil {
		b.Fatal(err)
	}
	if err := os.Symlink("locks", filepath.Join(root, "l")); err != nil {
		b.Fatal(err)
	}
	return t, root
}

func BenchmarkResolve(b *testing.B) {
	t, _ := benchTree(b)
	for _, name := range []string{"/phone_lock", "/locks/x", "/locks/a/b/c/x", "/l/x"} {
		b.Run(name[1:], func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := t.Resolve(name); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkMkdirRmdir compares a lock's directory through the tree, by os.Root alone, and by plain calls.
func BenchmarkMkdirRmdir(b *testing.B) {
	t, root := benchTree(b)
	r, err := os.OpenRoot(root)
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	pair := func(name string, mkdir, rmdir func() error) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := mkdir(); err != nil {
					b.Fatal(err)
				}
				if err := rmdir(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	for _, name := range []string{"/x", "/locks/x", "/locks/a/b/c/x"} {
		pair("tree"+name, func() error { return t.Mkdir(name, 0o755) }, func() error { return t.Rmdir(name) })
		pair("root"+name, func() error { return r.Mkdir(name[1:], 0o755) }, func() error { return r.Remove(name[1:]) })
		host := root + name
		pair("raw"+name, func() error { return unix.Mkdir(host, 0o755) }, func() error { return unix.Rmdir(host) })
	}
}

func BenchmarkSmallUpload(b *testing.B) {
	t, _ := benchTree(b)
	for b.Loop() {
		u, err := t.Upload("/locks/f", UploadOptions{})
		if err != nil {
			b.Fatal(err)
		}
		u.Write([]byte("content"))
		if err := u.Publish(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkTransfer moves 64 MiB over loopback; "copy" is what io.Copy does without
// the kernel's help. Over loopback sendfile is slower than that, for half the processor time.
func BenchmarkTransfer(b *testing.B) {
	const size = 64 << 20
	text := lines(1<<20, "\r\n")[:1<<20]
	t, root := benchTree(b)
	pace := Pace{Timeout: time.Minute, Progress: func(int64) {}}
	send := func(c *net.TCPConn) {
		for range size / len(text) {
			c.Write(text)
		}
		c.CloseWrite()
	}
	for _, ascii := range []bool{false, true} {
		b.Run(fmt.Sprint("upload/ascii=", ascii), func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				a, c := tcpPair(b)
				var wg sync.WaitGroup
				wg.Go(func() { send(a) })
				u, err := t.Upload("/f", UploadOptions{ASCII: ascii, Pace: pace})
				if err != nil {
					b.Fatal(err)
				}
				if n, err := u.ReadFrom(c); n != size || err != nil {
					b.Fatal(n, err)
				}
				wg.Wait()
				if err := u.Publish(); err != nil {
					b.Fatal(err)
				}
				a.Close()
				c.Close()
			}
		})
	}
	b.Run("upload/copy", func(b *testing.B) {
		b.SetBytes(size)
		buf := make([]byte, 128<<10)
		for b.Loop() {
			a, c := tcpPair(b)
			var wg sync.WaitGroup
			wg.Go(func() { send(a) })
			f, err := os.Create(root + "/g")
			if err != nil {
				b.Fatal(err)
			}
			io.CopyBuffer(struct{ io.Writer }{f}, struct{ io.Reader }{c}, buf)
			f.Close()
			wg.Wait()
			a.Close()
			c.Close()
		}
	})
	receive := func(a *net.TCPConn) {
		buf := make([]byte, 256<<10)
		for {
			if _, err := a.Read(buf); err != nil {
				return
			}
		}
	}
	if err := os.WriteFile(root+"/text", nil, 0o644); err != nil {
		b.Fatal(err)
	}
	f, _ := os.OpenFile(root+"/text", os.O_WRONLY, 0)
	unixText := lines(1<<20, "\n")[:1<<20]
	for range size >> 20 {
		f.Write(unixText)
	}
	f.Close()
	for _, ascii := range []bool{false, true} {
		b.Run(fmt.Sprint("download/ascii=", ascii), func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				a, c := tcpPair(b)
				var wg sync.WaitGroup
				wg.Go(func() { receive(a) })
				d, err := t.Download("/text", DownloadOptions{ASCII: ascii, Pace: pace})
				if err != nil {
					b.Fatal(err)
				}
				if _, err := d.WriteTo(c); err != nil {
					b.Fatal(err)
				}
				d.Close()
				c.Close()
				wg.Wait()
				a.Close()
			}
		})
	}
	b.Run("download/copy", func(b *testing.B) {
		b.SetBytes(size)
		buf := make([]byte, 128<<10)
		for b.Loop() {
			a, c := tcpPair(b)
			var wg sync.WaitGroup
			wg.Go(func() { receive(a) })
			f, err := os.Open(root + "/text")
			if err != nil {
				b.Fatal(err)
			}
			io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{f}, buf)
			f.Close()
			c.Close()
			wg.Wait()
			a.Close()
		}
	})
}
