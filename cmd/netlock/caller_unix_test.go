//go:build unix

package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// pipe returns both ends of a pipe that are closed at the end, at the latest.
func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.Close()
		w.Close()
	})
	return r, w
}

// watched starts a watch in a goroutine, and returns what it will say.
func watched(t *testing.T, stdin bool, in, out *os.File) (*watch, <-chan string) {
	t.Helper()
	w, err := watchFiles(stdin, int(in.Fd()), int(out.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	said := make(chan string, 1)
	go func() {
		said <- w.wait()
		w.close()
	}()
	return w, said
}

func want(t *testing.T, said <-chan string, what string) {
	t.Helper()
	select {
	case got := <-said:
		if got != what {
			t.Errorf("%q, want %q", got, what)
		}
	case <-time.After(10 * time.Second):
		t.Fatalf("nothing is said, want %q", what)
	}
}

func TestWatchSeesTheOtherEndOfStandardOutputClosed(t *testing.T) {
	defer goleak.VerifyNone(t)
	inR, _ := pipe(t)
	outR, outW := pipe(t)
	_, said := watched(t, false, inR, outW)
	outR.Close()
	want(t, said, stdoutClosed)
}

func TestWatchSeesTheEndOfStandardInputIfAskedFor(t *testing.T) {
	defer goleak.VerifyNone(t)
	inR, inW := pipe(t)
	_, outW := pipe(t)
	_, said := watched(t, true, inR, outW)
	w, unasked := watched(t, false, inR, outW)
	if _, err := inW.WriteString("this is read and means nothing"); err != nil {
		t.Fatal(err)
	}
	inW.Close()
	want(t, said, stdinClosed)
	w.interrupt()
	want(t, unasked, "")
}

func TestWatchOfAFileOrADeviceSaysNothing(t *testing.T) {
	defer goleak.VerifyNone(t)
	inR, _ := pipe(t)
	file, err := os.Create(t.TempDir() + "/out")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	w, said := watched(t, false, inR, file)
	w.interrupt()
	want(t, said, "")
}

func TestCallerThatIsNotWatchedAnyMoreEndsNothing(t *testing.T) {
	defer goleak.VerifyNone(t)
	ctx, forget, err := watchCaller(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	if ctx.Err() != nil {
		t.Error("it is gone at once:", context.Cause(ctx))
	}
	forget()
	if errors.Is(context.Cause(ctx), errCallerGone) {
		t.Error(context.Cause(ctx))
	}
}

func TestDotsThatFindNoRoomAreLeftOut(t *testing.T) {
	_, w := pipe(t)
	if !hasRoom(w) {
		t.Error("an empty pipe has no room")
	}
	raw, err := w.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Write(func(fd uintptr) bool {
		for {
			if _, err := syscall.Write(int(fd), []byte(strings.Repeat(".", 4096))); err != nil {
				return true
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	if hasRoom(w) {
		t.Error("a full pipe has room")
	}
}

func TestWatchIsBlindWithoutAParentAndAPipe(t *testing.T) {
	defer goleak.VerifyNone(t)
	_, p := pipe(t)
	file, err := os.Create(t.TempDir() + "/out")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, c := range []struct {
		name   string
		parent int
		out    *os.File
		want   bool
	}{
		{"a parent", os.Getpid(), file, false},
		{"none, and a pipe", 1, p, false},
		{"none, and a file", 1, file, true},
		{"one that cannot be seen, and a file", 0, file, true},
	} {
		w := watch{parent: c.parent, out: int(c.out.Fd())}
		if got := w.blind(); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}
