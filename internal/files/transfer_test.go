package files

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"io/fs"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/afero"
	"golang.org/x/sys/unix"
)

// wrapped is a connection as a driver wraps it.
type wrapped struct{ *net.TCPConn }

// opaque shows nothing of the connection below.
type opaque struct{ net.Conn }

// tlsPair returns both ends of a TLS connection over loopback.
func tlsPair(t *testing.T) (client, server *tls.Conn) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	a, b := tcpPair(t)
	client = tls.Client(a, &tls.Config{InsecureSkipVerify: true})
	server = tls.Server(b, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := client.Handshake(); err != nil {
			t.Error(err)
		}
	})
	if err := server.Handshake(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	return client, server
}

// everyConnection runs a test with each kind of data connection.
func everyConnection(t *testing.T, test func(t *testing.T, client, server net.Conn)) {
	t.Run("plain", func(t *testing.T) { a, b := tcpPair(t); test(t, a, b) })
	t.Run("wrapped", func(t *testing.T) { a, b := tcpPair(t); test(t, a, wrapped{b}) })
	t.Run("opaque", func(t *testing.T) { a, b := tcpPair(t); test(t, a, opaque{b}) })
	t.Run("tls", func(t *testing.T) { a, b := tlsPair(t); test(t, a, b) })
	t.Run("pipe", func(t *testing.T) { a, b := net.Pipe(); test(t, a, b) })
}

func TestTransfersAreExact(t *testing.T) {
	content := make([]byte, 3<<20+17)
	for i := range content {
		content[i] = byte(i * i >> 7)
	}
	everyConnection(t, func(t *testing.T, client, server net.Conn) {
		s := serve(t, Options{})
		s.put("/f", "old content")
		var sender sync.WaitGroup
		sender.Go(func() {
			if _, err := client.Write(content); err != nil {
				t.Error(err)
			}
			client.Close()
		})
		u, err := s.Upload("/f", UploadOptions{Offset: 4})
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(u, server) // as ftpserverlib does
		sender.Wait()
		server.Close()
		if err != nil || n != int64(len(content)) || u.Size() != n+4 {
			t.Errorf("%d of %d bytes, size %d, %v", n, len(content), u.Size(), err)
		}
		if _, err := u.Write([]byte("end")); err != nil {
			t.Error(err)
		}
		if err := u.Publish(); err != nil {
			t.Fatal(err)
		}
		s.want("/f", "old "+string(content)+"end")
	})
	everyConnection(t, func(t *testing.T, client, server net.Conn) {
		s := serve(t, Options{})
		s.put("/f", string(content))
		f, err := s.Open("/f")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.Seek(1000, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		var receiver sync.WaitGroup
		var got []byte
		receiver.Go(func() { got, _ = io.ReadAll(client) })
		n, err := io.Copy(server, f)
		server.Close()
		receiver.Wait()
		client.Close()
		if err != nil || n != int64(len(got)) || !bytes.Equal(got, content[1000:]) {
			t.Errorf("%d bytes, %d received, %v", n, len(got), err)
		}
	})
}

// A transfer that was cut off shows nothing but FTP paths, and none of the addresses.
func TestErrorsOfConnections(t *testing.T) {
	everyConnection(t, func(t *testing.T, client, server net.Conn) {
		s := serve(t, Options{})
		s.put("/f", "content")
		client.Close()
		server.Close()
		u, err := s.Upload("/g", UploadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = u.ReadFrom(server); err == nil {
			t.Error("nothing is said")
		} else {
			s.wantPath(err, "/g")
		}
		f, err := s.Open("/f")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err = io.Copy(server, f); err == nil {
			t.Fatal("nothing is said")
		}
		s.wantPath(err, "/f")
		if strings.Contains(err.Error(), "127.0.0.1") {
			t.Error(err)
		}
		if err := u.Discard(); err != nil {
			t.Error(err)
		}
	})
}

// A deadline of the connection ends a transfer, and is told from other failures.
func TestADeadlineOfTheConnectionIsTold(t *testing.T) {
	everyConnection(t, func(t *testing.T, client, server net.Conn) {
		defer client.Close()
		defer server.Close()
		s := serve(t, Options{})
		f, err := os.Create(s.host("/f"))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Truncate(64<<20), f.Close()); err != nil {
			t.Fatal(err)
		}
		server.SetDeadline(time.Now().Add(50 * time.Millisecond))
		u, err := s.Upload("/g", UploadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = u.ReadFrom(server)
		wantIs(t, err, os.ErrDeadlineExceeded)
		wantIs(t, u.Publish(), os.ErrDeadlineExceeded, ErrBroken)
		open, err := s.Open("/f")
		if err != nil {
			t.Fatal(err)
		}
		defer open.Close()
		_, err = io.Copy(server, open)
		wantIs(t, err, os.ErrDeadlineExceeded)
		s.wantClean()
	})
}

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
	for _, play := range []string{"TestTransferOfTheStrace", "TestWrappedTransferOfTheStrace"} {
		calls := filepath.Join(t.TempDir(), "calls")
		said, err := exec.Command(strace, "-f", "-o", calls, "-e", "trace=sendfile,splice", os.Args[0], "-test.run=^"+play+"$", "-test.v").CombinedOutput()
		if err != nil {
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
			t.Errorf("%s: %v\n%s", play, moved, out)
		}
	}
}

func TestTransferOfTheStrace(t *testing.T) {
	aTransfer(t, func(c *net.TCPConn) net.Conn { return c })
}

func TestWrappedTransferOfTheStrace(t *testing.T) {
	aTransfer(t, func(c *net.TCPConn) net.Conn { return wrapped{c} })
}

// aTransfer moves 1 MiB over a connection into a file and from there over another.
func aTransfer(t *testing.T, wrap func(*net.TCPConn) net.Conn) {
	s := serve(t, Options{})
	a, b := tcpPair(t)
	var other sync.WaitGroup
	other.Go(func() { a.Write(make([]byte, 1<<20)); a.CloseWrite() })
	u, err := s.Upload("/f", UploadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(u, wrap(b)); n != 1<<20 || err != nil {
		t.Fatal(n, err)
	}
	other.Wait()
	if err := u.Publish(); err != nil {
		t.Fatal(err)
	}
	f, err := s.Open("/f")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	other.Go(func() {
		if n, err := io.Copy(io.Discard, a); n != 1<<20 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	})
	if n, err := io.Copy(wrap(b), f); n != 1<<20 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	b.Close()
	other.Wait()
}

func TestAFileThatIsCutOffWhileItIsRead(t *testing.T) {
	for how, read := range map[string]func(w io.Writer, f afero.File) (int64, error){
		"WriteTo": func(w io.Writer, f afero.File) (int64, error) { return f.(io.WriterTo).WriteTo(w) },
		"Read":    func(w io.Writer, f afero.File) (int64, error) { return io.Copy(w, struct{ io.Reader }{f}) },
	} {
		s := serve(t, Options{})
		s.put("/f", "a file of some length")
		f, err := s.Open("/f")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(s.host("f"), 6); err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if _, err := read(&got, f); !errors.Is(err, ErrShrunk) || got.String() != "a file" {
			t.Errorf("%s: %q, %v", how, got.String(), err)
		} else {
			s.wantPath(err, "/f")
		}
		f.Close()
	}
}

func TestWhatIsNoFileIsNotOpened(t *testing.T) {
	s := serve(t, Options{})
	s.mkdir("/d")
	if err := unix.Mkfifo(s.host("/d/fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", s.host("/d/socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s.link("d/fifo", "/link")
	names := []string{"/d/fifo", "/d/socket", "/link"}
	if unix.Mknod(s.host("/d/null"), unix.S_IFCHR|0o644, int(unix.Mkdev(1, 3))) == nil { // only root can
		names = append(names, "/d/null")
	}
	for _, name := range names {
		f, err := s.Open(name)
		if err == nil {
			f.Close()
		}
		wantIs(t, err, ErrNotRegular)
		s.wantPath(err, name)
	}
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
	if n, err := f.ReadAt(part[:], 8); n != 2 || err != io.EOF {
		t.Errorf("%d bytes at the end, %v", n, err)
	}
	if at, err := f.Seek(-4, io.SeekEnd); at != 6 || err != nil {
		t.Error(at, err)
	}
	if rest, err := io.ReadAll(f); string(rest) != "6789" || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
	if _, err := f.Seek(-1, io.SeekStart); err == nil {
		t.Error("before the beginning")
	} else {
		s.wantPath(err, "/link")
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

func TestSumOfAnUpload(t *testing.T) {
	s := serve(t, Options{})
	u := s.begun("/f", "abc", UploadOptions{})
	for range 2 {
		size, sum, err := u.Sum()
		if size != 3 || sum != "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" || err != nil {
			t.Error(size, sum, err)
		}
	}
	if _, err := u.Write([]byte("d")); err != nil {
		t.Error(err)
	}
	if err := u.Publish(); err != nil {
		t.Fatal(err)
	}
	s.want("/f", "abcd")
	_, _, err := u.Sum()
	wantIs(t, err, ErrDone)
	wantIs(t, u.InPlace(), ErrDone)
}
