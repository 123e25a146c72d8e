package files

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// wrapped is a connection as a driver wraps it.
type wrapped struct{ *net.TCPConn }

func TestADiscardFromElsewhereEndsAnUpload(t *testing.T) {
	s := serve(t, Options{})
	a, b := tcpPair(t)
	u, err := s.Upload("/f", UploadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { _, err := u.ReadFrom(b); done <- err }()
	a.Write([]byte("half"))
	if err := u.Discard(); err != nil {
		t.Error(err)
	}
	a.Write([]byte("more"))
	a.Close()
	<-done
	wantIs(t, u.Publish(), ErrDone)
	s.wantClean()
}

// The kernel moves the bytes: strace sees sendfile from the file and splice into it.
func TestPlainTransfersStayInTheKernel(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("there is no strace")
	}
	calls := filepath.Join(t.TempDir(), "calls")
	cmd := exec.Command(strace, "-f", "-o", calls, "-e", "trace=sendfile,splice", os.Args[0], "-test.run=^TestTransferOfTheStrace$", "-test.v")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("strace does not work here: %v\n%s", err, said)
	}
	out, err := os.ReadFile(calls)
	if err != nil {
		t.Fatal(err)
	}
	moved := map[string]int{}
	for line := range strings.Lines(string(out)) {
		for _, call := range []string{"sendfile", "splice"} {
			result := line[strings.LastIndex(line, "=")+1:] // behind a call that is resumed, too
			if n, err := strconv.Atoi(strings.TrimSpace(result)); err == nil && n > 0 && strings.Contains(line, call) {
				moved[call] += n
			}
		}
	}
	if moved["sendfile"] != 1<<20 || moved["splice"] != 2<<20 { // into a pipe, and out of it
		t.Errorf("%v\n%s", moved, out)
	}
}

// It moves 1 MiB over a connection into a file and back.
func TestTransferOfTheStrace(t *testing.T) {
	s := serve(t, Options{})
	a, tcp := tcpPair(t)
	b := wrapped{tcp}
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	var other sync.WaitGroup
	other.Go(func() { a.Write(content); a.CloseWrite() })
	u, err := s.Upload("/f", UploadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(u, b); err != nil {
		t.Fatal(err)
	}
	other.Wait()
	if err := u.Publish(); err != nil {
		t.Fatal(err)
	}
	s.want("/f", string(content))
	f, err := s.Open("/f")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	other.Go(func() {
		if got, err := io.ReadAll(a); !bytes.Equal(got, content) || err != nil {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	})
	if _, err := io.Copy(b, f); err != nil {
		t.Error(err)
	}
	b.Close()
	other.Wait()
}

func TestAnOpenFile(t *testing.T) {
	s := serve(t, Options{})
	s.mkdir("/d")
	s.put("/d/f", "0123456789")
	s.link("d/f", "/link")
	f, err := s.Open("/link")
	if err != nil {
		t.Fatal(err)
	}
	s.mustUpload("/d/f", "another", UploadOptions{})
	i, err := f.Stat()
	if err != nil || i.Name() != "link" || i.Size() != 10 || !i.Mode().IsRegular() || f.Name() != "/link" {
		t.Errorf("%+v, %v, %s", i, err, f.Name())
	}
	var part [3]byte
	if n, err := f.ReadAt(part[:], 8); string(part[:n]) != "89" || err != io.EOF {
		t.Errorf("%q at the end, %v", part[:n], err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	_, read := f.Read(part[:])
	_, readAt := f.ReadAt(part[:], 0)
	_, writeTo := f.(io.WriterTo).WriteTo(io.Discard)
	_, stat := f.Stat()
	for what, err := range map[string]error{"read": read, "readAt": readAt, "writeTo": writeTo, "stat": stat, "close": f.Close()} {
		if !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%s after Close: %v", what, err)
		} else {
			s.wantPath(err, "/link")
		}
	}
}
