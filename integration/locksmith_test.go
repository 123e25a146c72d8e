package integration

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/locksmith"
)

// host is a server for locks.
type host struct {
	config locksmith.Config
	dir    string // where locks and files are made
	root   string // the directory that clients see as "/"
	tokens bool   // it is ftplockd
}

// wish is a lock to acquire on a server.
type wish struct {
	Config locksmith.Config
	Path   string
	locksmith.Options
	TryOnce bool
}

func (h host) lock(name string) wish {
	w := wish{Config: h.config, Path: h.dir + "/" + name}
	w.Config.Poll, w.Config.Check = 20*time.Millisecond, 50*time.Millisecond
	return w
}

func (w wish) acquire(ctx context.Context) (*locksmith.Lock, error) {
	if w.TryOnce {
		return locksmith.TryAcquire(ctx, w.Config, w.Path, w.Options)
	}
	return locksmith.Acquire(ctx, w.Config, w.Path, w.Options)
}

func (h host) disk(name string) string { return filepath.Join(h.root, h.dir, name) }

// onEach runs a test on ftplockd and on each other installed server, without TLS.
func onEach(t *testing.T, run func(t *testing.T, h host)) {
	t.Run("ftplockd", func(t *testing.T) {
		t.Parallel()
		run(t, ours(t, startServer(t, defaults)))
	})
	for name, start := range others() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, start(t, false))
		})
	}
}

func ours(t *testing.T, s *server) host {
	t.Helper()
	return host{
		config: locksmith.Config{Address: s.v4, User: account, Password: password, Timeout: 10 * time.Second},
		dir:    "/locks", root: s.root, tokens: true,
	}
}

func acquire(t *testing.T, o wish) *locksmith.Lock {
	t.Helper()
	l, err := o.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Release(context.Background()) })
	return l
}

func release(t *testing.T, l *locksmith.Lock) {
	t.Helper()
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestLocksmithOnEachServer takes, loses and releases locks, and transfers files, on ftplockd and on each other installed server.
func TestLocksmithOnEachServer(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, h host) {
		h.acquiresAndReleases(t)
		h.hasOneHolderAtATime(t)
		h.detectsTheLoss(t)
		h.releasesNoLockOfAnother(t)
		if h.tokens {
			h.keepsALockThatCannotBeReleased(t)
		}
		putsAndGets(t, h)
	})
}

// stat describes the lock, as a connection of its job.
func (h host) stat(t *testing.T, l *locksmith.Lock) (locksmith.Status, error) {
	c := h.config
	c.JobKey = l.JobKey()
	return locksmith.Stat(t.Context(), c, l.Path())
}

func (h host) acquiresAndReleases(t *testing.T) {
	l := acquire(t, h.lock("a"))
	if l.Path() != h.dir+"/a" || (l.Token() != 0) != h.tokens || l.Expires().IsZero() == h.tokens {
		t.Errorf("path %q, token %d, expires %v", l.Path(), l.Token(), l.Expires())
	}
	if _, err := os.Stat(h.disk("a")); err != nil {
		t.Error(err)
	}
	if i, err := h.stat(t, l); err != nil || !i.Held || h.tokens && (len(i.Holders) != 1 || i.Holders[0].Token != l.Token()) {
		t.Errorf("held: %+v, %v", i, err)
	}
	if i, err := locksmith.Stat(t.Context(), h.config, h.dir+"/b"); err != nil || i.Held {
		t.Errorf("free: %+v, %v", i, err)
	}
	if _, err := locksmith.Stat(t.Context(), h.config, "/no/such/lock"); errors.Is(err, locksmith.ErrRefused) != h.tokens {
		t.Errorf("no lock: %v", err)
	}
	once := h.lock("a")
	once.TryOnce = true
	_, err := once.acquire(t.Context())
	refusal, ok := errors.AsType[*locksmith.HeldError](err)
	if !ok || !errors.Is(err, locksmith.ErrHeld) || strings.Contains(err.Error(), "\n") {
		t.Fatalf("a second client got %v", err)
	}
	if h.tokens && refusal.Holder != account+"@127.0.0.1" {
		t.Errorf("the holder is %q", refusal.Holder)
	}
	release(t, l)
	if _, err := os.Stat(h.disk("a")); err == nil {
		t.Error("the directory is still there")
	}
	release(t, acquire(t, once))
}

func (h host) hasOneHolderAtATime(t *testing.T) {
	var inside, turns atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 2 {
				l, err := h.lock("contended").acquire(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d holders", n)
				}
				turns.Add(1)
				inside.Add(-1)
				if err := l.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if n := turns.Load(); n != 16 {
		t.Errorf("%d turns, not 16", n)
	}
}

func (h host) detectsTheLoss(t *testing.T) {
	l := acquire(t, h.lock("lost"))
	if err := os.Remove(h.disk("lost")); err != nil {
		t.Fatal(err)
	}
	select {
	case <-l.Context().Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the loss was not detected")
	}
	if err := l.Err(); !errors.Is(err, locksmith.ErrLost) {
		t.Errorf("lost with %v", err)
	}
	if err := l.Release(t.Context()); !errors.Is(err, locksmith.ErrLost) {
		t.Errorf("released with %v", err)
	}
}

func (h host) releasesNoLockOfAnother(t *testing.T) {
	o := h.lock("other")
	o.Config.Check = time.Hour // Release checks the lock first
	l := acquire(t, o)
	past := time.Now().Add(-5 * time.Minute) // vsftpd shows minutes
	if err := errors.Join(os.Remove(h.disk("other")), os.Mkdir(h.disk("other"), 0o777), os.Chtimes(h.disk("other"), past, past)); err != nil {
		t.Fatal(err)
	}
	if err := l.Release(t.Context()); !errors.Is(err, locksmith.ErrLost) {
		t.Errorf("released with %v", err)
	}
	if _, err := os.Stat(h.disk("other")); err != nil {
		t.Errorf("the directory of the other client: %v", err)
	}
}

// RMD of a lock with a file in it is refused. The lock is still held, and can be released later.
func (h host) keepsALockThatCannotBeReleased(t *testing.T) {
	l := acquire(t, h.lock("full"))
	if err := l.Put(t.Context(), l.Path()+"/f", strings.NewReader("x"), 1); err != nil {
		t.Fatal(err)
	}
	if err := l.Release(t.Context()); !errors.Is(err, locksmith.ErrRefused) || errors.Is(err, locksmith.ErrLost) {
		t.Errorf("released with %v", err)
	}
	if i, err := h.stat(t, l); err != nil || !i.Held || !i.Holders[0].Mine {
		t.Errorf("%+v, %v", i, err)
	}
	if err := os.Remove(filepath.Join(h.disk("full"), "f")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if i, err := h.stat(t, l); err != nil || i.Held {
		t.Errorf("%+v, %v", i, err)
	}
}

func putsAndGets(t *testing.T, h host) {
	o := h.lock("a")
	name := "/phone.tsv"
	if !h.tokens {
		name = h.dir + name
	}
	onDisk := filepath.Join(h.root, name)
	l := acquire(t, o)
	content := bytes.Repeat([]byte("0123456789\n"), 20000)
	for i, size := range []int64{int64(len(content)), -1} {
		sent := content[i:] // the second replaces the first
		if size >= 0 {
			size = int64(len(sent))
		}
		if err := l.Put(t.Context(), name, bytes.NewReader(sent), size); err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		n, err := l.Get(t.Context(), name, &got)
		if err != nil || n != int64(len(sent)) || !bytes.Equal(got.Bytes(), sent) {
			t.Fatalf("got %d bytes and %v", n, err)
		}
	}
	content = content[1:]
	failing := io.MultiReader(bytes.NewReader(content[:100000]), &failingReader{})
	for _, broken := range []struct {
		r    io.Reader
		size int64
	}{{failing, -1}, {bytes.NewReader(content[:5]), 10}, {bytes.NewReader(content), 10}} {
		if err := l.Put(t.Context(), name, broken.r, broken.size); !errors.Is(err, locksmith.ErrLocal) {
			t.Errorf("a broken Put: %v", err)
		}
		if now, err := os.ReadFile(onDisk); err != nil || !bytes.Equal(now, content) {
			t.Errorf("after a broken Put there are %d bytes, %v", len(now), err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(onDisk), "*.part")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if _, err := l.Get(t.Context(), name+"x", io.Discard); !errors.Is(err, locksmith.ErrRefused) {
		t.Errorf("a missing file: %v", err)
	}
	if err := l.Put(t.Context(), name+".empty", strings.NewReader(""), 0); err != nil {
		t.Error(err)
	}
	release(t, l)
	if err := l.Put(t.Context(), name, strings.NewReader("late"), 4); !errors.Is(err, locksmith.ErrReleased) {
		t.Errorf("a Put after Release: %v", err)
	}
}

type failingReader struct{}

var errFailing = errors.New("the reader failed")

func (*failingReader) Read([]byte) (int, error) { return 0, errFailing }

func TestLocksmithOverTLS(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, h host) {
		h.config.TLSConfig = &tls.Config{InsecureSkipVerify: true}
		h.config.TLS = locksmith.TLSExplicit
		putsAndGets(t, h)
	}
	t.Run("ftplockd", func(t *testing.T) {
		t.Parallel()
		h := ours(t, startServer(t, defaults+tlsTables(t, t.TempDir())+"session_reuse = \"required\"\n"))
		run(t, h)
		h.config.TLS, h.config.TLSConfig = locksmith.TLSExplicit, nil
		if _, err := locksmith.Stat(t.Context(), h.config, "/a"); !errors.Is(err, locksmith.ErrTLS) {
			t.Errorf("an unknown certificate: %v", err)
		}
	})
	for name, start := range others() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, start(t, true))
		})
	}
}

func TestLocksmithOverIPv6(t *testing.T) {
	t.Parallel()
	s := startServer(t, defaults)
	h := ours(t, s)
	h.config.Address = s.v6
	putsAndGets(t, h)
}
