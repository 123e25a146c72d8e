package files

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

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
		pair("tree"+name, func() error { return t.Mkdir(name, 0o755) }, func() error { return t.RemoveDir(name) })
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
	piece := make([]byte, 1<<20)
	t, root := benchTree(b)
	send := func(c *net.TCPConn) {
		for range size / len(piece) {
			c.Write(piece)
		}
		c.CloseWrite()
	}
	receive := func(c *net.TCPConn) {
		io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, make([]byte, 256<<10))
	}
	each := func(name string, client func(*net.TCPConn), server func(*net.TCPConn) error) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				a, c := tcpPair(b)
				var wg sync.WaitGroup
				wg.Go(func() { client(a) })
				if err := server(c); err != nil {
					b.Fatal(err)
				}
				c.Close()
				wg.Wait()
				a.Close()
			}
		})
	}
	copied := func(w io.Writer, r io.Reader) error {
		_, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, make([]byte, 128<<10))
		return err
	}
	each("upload", send, func(c *net.TCPConn) error {
		u, err := t.Upload("/f", UploadOptions{})
		if err != nil {
			return err
		}
		if _, err := u.ReadFrom(c); err != nil {
			return err
		}
		return u.Publish()
	})
	each("upload/copy", send, func(c *net.TCPConn) error {
		f, err := os.Create(root + "/g")
		if err != nil {
			return err
		}
		return errors.Join(copied(f, c), f.Close())
	})
	each("download", receive, func(c *net.TCPConn) error {
		f, err := t.Open("/f")
		if err != nil {
			return err
		}
		_, err = io.Copy(c, f)
		return errors.Join(err, f.Close())
	})
	each("download/copy", receive, func(c *net.TCPConn) error {
		f, err := os.Open(root + "/g")
		if err != nil {
			return err
		}
		return errors.Join(copied(c, f), f.Close())
	})
}
