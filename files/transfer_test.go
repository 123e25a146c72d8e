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
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
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
	text := lines(3<<20+17, "\r\n")
	everyConnection(t, func(t *testing.T, client, server net.Conn) {
		for _, ascii := range []bool{false, true} {
			s := serve(t, Options{})
			var told int64
			pace := Pace{Timeout: time.Minute, Progress: func(n int64) { told += n }}
			a, b := client, server
			if ascii { // a connection is for one transfer
				c, d := tcpPair(t)
				a, b = c, d
			}
			var sender sync.WaitGroup
			sender.Go(func() {
				if _, err := a.Write(text); err != nil {
					t.Error(err)
				}
				a.Close()
			})
			u, err := s.Upload("/f", UploadOptions{ASCII: ascii, Pace: pace})
			if err != nil {
				t.Fatal(err)
			}
			n, err := io.Copy(u, b) // as ftpserverlib does
			sender.Wait()
			b.Close()
			if err != nil || n != int64(len(text)) || u.Received() != n || told != n {
				t.Errorf("%d of %d bytes, %d told, %v", n, len(text), told, err)
			}
			if err := u.Publish(); err != nil {
				t.Fatal(err)
			}
			want := text
			if ascii {
				want = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
			}
			s.want("/f", string(want))
		}
	})
	everyConnection(t, func(t *testing.T, client, server net.Conn) {
		s := serve(t, Options{})
		s.put("/f", string(text))
		for _, ascii := range []bool{false, true} {
			var told int64
			a, b := client, server
			if ascii {
				c, d := tcpPair(t)
				a, b = c, d
			}
			d, err := s.Download("/f", DownloadOptions{ASCII: ascii, Offset: 1000, Pace: Pace{Timeout: time.Minute, Progress: func(n int64) { told += n }}})
			if err != nil {
				t.Fatal(err)
			}
			var receiver sync.WaitGroup
			var got []byte
			receiver.Go(func() { got, _ = io.ReadAll(a) })
			n, err := io.Copy(b, d)
			b.Close()
			receiver.Wait()
			d.Close()
			a.Close()
			if err != nil || n != int64(len(got)) || told != n || !bytes.Equal(got, text[1000:]) {
				t.Errorf("%d bytes, %d told, %d received, %v", n, told, len(got), err)
			}
		}
	})
}

func TestASCIIDownloads(t *testing.T) {
	s := serve(t, Options{})
	s.put("/f", "a\nb\r\nc\n\nd")
	for offset, want := range []string{"a\r\nb\r\nc\r\n\r\nd", "\r\nb\r\nc\r\n\r\nd", "b\r\nc\r\n\r\nd", "\r\nc\r\n\r\nd", "\nc\r\n\r\nd", "c\r\n\r\nd"} {
		d, err := s.Download("/f", DownloadOptions{ASCII: true, Offset: int64(offset)})
		if err != nil {
			t.Fatal(err)
		}
		var first [3]byte
		n, err := d.Read(first[:])
		if err != nil {
			t.Fatal(err)
		}
		var rest bytes.Buffer
		if _, err := d.WriteTo(&rest); err != nil {
			t.Fatal(err)
		}
		d.Close()
		if got := string(first[:n]) + rest.String(); got != want {
			t.Errorf("from %d: %q, want %q", offset, got, want)
		}
	}
}

func TestDownloadOffsets(t *testing.T) {
	s := serve(t, Options{})
	s.put("/f", "0123")
	for offset, want := range map[int64]string{0: "0123", 3: "3", 4: "", 5: "error", -1: "error"} {
		d, err := s.Download("/f", DownloadOptions{Offset: offset})
		if want == "error" {
			wantIs(t, err, ErrOffset)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(d); err != nil || string(b) != want {
			t.Errorf("from %d: %q, %v", offset, b, err)
		}
		d.Close()
	}
}

func TestAStalledUploadEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, Options{})
		a, b := net.Pipe()
		defer a.Close()
		defer b.Close()
		var told int64
		u, err := s.Upload("/f", UploadOptions{Pace: Pace{Timeout: time.Minute, Step: time.Second, Progress: func(n int64) { told += n }}})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for range 10 { // slow, but never for a whole minute
				time.Sleep(59 * time.Second)
				a.Write([]byte("x"))
			}
		}()
		start := time.Now()
		n, err := u.ReadFrom(b)
		wantIs(t, err, os.ErrDeadlineExceeded)
		if took := time.Since(start); n != 10 || told != 10 || took < 650*time.Second || took > 652*time.Second {
			t.Errorf("%d bytes, %d told, %v", n, told, took)
		}
		wantIs(t, u.Publish(), os.ErrDeadlineExceeded)
		s.wantClean()
	})
}

func TestAStalledDownloadEnds(t *testing.T) {
	for _, ascii := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := serve(t, Options{})
			s.put("/f", strings.Repeat("x", 100_000))
			a, b := net.Pipe()
			defer a.Close()
			defer b.Close()
			var told int64
			d, err := s.Download("/f", DownloadOptions{ASCII: ascii, Pace: Pace{Timeout: time.Minute, Step: time.Second, Progress: func(n int64) { told += n }}})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			go func() {
				for range 3 {
					time.Sleep(55 * time.Second)
					io.ReadFull(a, make([]byte, smallPiece))
				}
			}()
			start := time.Now()
			n, err := d.WriteTo(b)
			wantIs(t, err, os.ErrDeadlineExceeded)
			if took := time.Since(start); n != 3*smallPiece || told != n || took < 224*time.Second || took > 227*time.Second {
				t.Errorf("%d bytes, %d told, %v", n, told, took)
			}
		})
	}
}

// What a client takes in of what waits in the kernel is progress too, though no write comes back meanwhile.
func TestADownloadThatOnlyDrainsTheKernelsQueueGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		defer a.Close()
		defer b.Close()
		queued, looks, told := 1000, 0, 0
		var all beats
		w := all.watchWrite(b, Pace{Timeout: 2 * time.Second, Step: time.Second, Progress: func(int64) { told++ }})
		w.mu.Lock()
		w.queued = queued
		w.queue = func() (int, bool) {
			if looks++; looks <= 60 {
				queued--
			}
			return queued, true
		}
		w.mu.Unlock()
		start := time.Now()
		_, err := b.Write([]byte("x"))
		wantIs(t, err, os.ErrDeadlineExceeded)
		w.stop()
		if took := time.Since(start); took != 62*time.Second || told != 60 {
			t.Errorf("it ended after %v, told %d times", took, told)
		}
	})
}

// The same on a real connection: each kind of it ends when the client takes nothing, and the time counts from the last byte.
func TestAClientThatTakesNothingIsGivenUp(t *testing.T) {
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
		d, err := s.Download("/f", DownloadOptions{Pace: Pace{Timeout: 200 * time.Millisecond, Step: 20 * time.Millisecond}})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		n, err := d.WriteTo(server)
		wantIs(t, err, os.ErrDeadlineExceeded)
		if n == 64<<20 {
			t.Error("it was sent")
		}
	})
	everyConnection(t, func(t *testing.T, client, server net.Conn) {
		defer client.Close()
		defer server.Close()
		s := serve(t, Options{})
		u, err := s.Upload("/f", UploadOptions{Pace: Pace{Timeout: 200 * time.Millisecond, Step: 20 * time.Millisecond}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = u.ReadFrom(server)
		wantIs(t, err, os.ErrDeadlineExceeded)
		if err := u.Discard(); err != nil {
			t.Error(err)
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
		u, err := s.Upload("/g", UploadOptions{Pace: Pace{Timeout: time.Minute}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = u.ReadFrom(server); err == nil {
			t.Error("nothing is said")
		} else {
			s.wantPath(err, "/g")
		}
		d, err := s.Download("/f", DownloadOptions{Pace: Pace{Timeout: time.Minute}})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if _, e := d.WriteTo(server); e == nil {
			t.Error("nothing is said")
		} else {
			s.wantPath(e, "/f")
			err = e
		}
		if strings.Contains(err.Error(), "127.0.0.1") {
			t.Error(err)
		}
		if err := u.Discard(); err != nil {
			t.Error(err)
		}
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

// The kernel moves the bytes: strace sees sendfile.
func TestPlainDownloadsStayInTheKernel(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("there is no strace")
	}
	out, err := exec.Command(strace, "-f", "-c", "-U", "calls,name", "-e", "trace=sendfile", os.Args[0], "-test.run=^TestTransferOfTheStrace$", "-test.v").CombinedOutput()
	if err != nil {
		t.Skipf("strace does not work here: %v\n%s", err, out)
	}
	calls := make(map[string]bool)
	for line := range strings.Lines(string(out)) {
		if fields := strings.Fields(line); len(fields) == 2 {
			calls[fields[1]] = true
		}
	}
	if !calls["sendfile"] {
		t.Errorf("no sendfile:\n%s", out)
	}
}

func TestTransferOfTheStrace(t *testing.T) {
	s := serve(t, Options{})
	for _, wrap := range []func(*net.TCPConn) net.Conn{
		func(c *net.TCPConn) net.Conn { return c },
		func(c *net.TCPConn) net.Conn { return wrapped{c} },
	} {
		a, b := tcpPair(t)
		go func() { a.Write(make([]byte, 1<<20)); a.CloseWrite() }()
		u, err := s.Upload("/f", UploadOptions{Pace: Pace{Timeout: time.Minute}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(u, wrap(b)); err != nil {
			t.Fatal(err)
		}
		if err := u.Publish(); err != nil {
			t.Fatal(err)
		}
		d, err := s.Download("/f", DownloadOptions{Pace: Pace{Timeout: time.Minute}})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			defer d.Close()
			io.Copy(wrap(b), d)
			b.Close()
		}()
		if n, err := io.Copy(io.Discard, a); n != 1<<20 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
}

func TestAFileThatIsCutOffWhileItIsDownloaded(t *testing.T) {
	for _, ascii := range []bool{false, true} {
		s := serve(t, Options{})
		s.put("/f", "a file of some length")
		d, err := s.Download("/f", DownloadOptions{ASCII: ascii})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(s.host("f"), 6); err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if _, err := d.WriteTo(&got); !errors.Is(err, ErrShrunk) || got.String() != "a file" {
			t.Errorf("ASCII %v: %q, %v", ascii, got.String(), err)
		}
		d.Close()
	}
}

func TestAClosedDownloadUsesNoDescriptor(t *testing.T) {
	s := serve(t, Options{})
	s.put("/f", strings.Repeat("x", 1<<20))
	d, err := s.Download("/f", DownloadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		for buf := make([]byte, 10); ; {
			if _, err := d.file.ReadAt(buf, 0); err != nil {
				if !errors.Is(err, fs.ErrClosed) {
					t.Error(err)
				}
				return
			}
		}
	})
	time.Sleep(time.Millisecond)
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	reading.Wait()
	if err := d.Close(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("a second close: %v", err)
	}
}
