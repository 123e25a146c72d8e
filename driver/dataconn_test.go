package driver

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ftplockd/ftplockd/files"
)

// inAHurry lets a connection wait no longer than that.
func inAHurry(c *dataConn, d time.Duration) {
	c.hurry = &haste{until: time.Now().Add(d), waits: make(chan struct{}, 1)}
}

func TestDataThatIsThereIsReadWithoutThePoller(t *testing.T) {
	ours, theirs := dataPair(t)
	if _, err := theirs.Write([]byte("abc")); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	inAHurry(ours, patience) // the bytes may be on their way
	got, err := io.ReadAll(ours)
	if string(got) != "abc" || err != nil || !ours.ended {
		t.Errorf("%q, %v, ended: %v", got, err, ours.ended)
	}
	if ours.polled != nil {
		t.Error("the poller was asked")
	}
}

// What fails for want of time can be gone on with, and nothing is lost.
func TestATransferInAHurryIsGoneOnWith(t *testing.T) {
	ours, theirs := dataPair(t)
	inAHurry(ours, 0)
	if n, err := ours.Read(make([]byte, 10)); n != 0 || !errors.Is(err, files.ErrWouldWait) {
		t.Fatalf("%d, %v", n, err)
	}
	content := bytes.Repeat([]byte("0123456789"), 1<<20) // more than the kernel takes
	sent, err := ours.Write(content)
	if sent == 0 || sent == len(content) || !errors.Is(err, files.ErrWouldWait) {
		t.Fatalf("%d, %v", sent, err)
	}
	ours.hurry = nil
	go func() {
		_, err := ours.Write(content[sent:])
		ours.Close()
		if err != nil {
			t.Error(err)
		}
	}()
	got, err := io.ReadAll(theirs)
	if !bytes.Equal(got, content) || err != nil {
		t.Errorf("%d of %d bytes, %v", len(got), len(content), err)
	}
}

// Only so many threads wait: who comes when they do does not wait at all.
func TestFewWaitInAHurry(t *testing.T) {
	ours, theirs := dataPair(t)
	inAHurry(ours, patience)
	ours.hurry.waits <- struct{}{}
	began := time.Now()
	if _, err := ours.Read(make([]byte, 1)); !errors.Is(err, files.ErrWouldWait) || time.Since(began) > patience/2 {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	<-ours.hurry.waits
	theirs.Write([]byte("x"))
	if n, err := ours.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if len(ours.hurry.waits) != 0 {
		t.Error("somebody waits still")
	}
}

// A deadline that was set while nothing had to be waited for counts when something has to.
func TestDeadlinesOfADataConnection(t *testing.T) {
	for _, late := range []bool{false, true} {
		ours, _ := dataPair(t)
		if late {
			if err := ours.SetDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
		} else if err := ours.SetReadDeadline(time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		var failed *net.OpError
		if _, err := ours.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &failed) {
			t.Errorf("read: %v", err)
		}
		if err := ours.SetWriteDeadline(time.Unix(1, 0)); err != nil { // of one that is polled
			t.Fatal(err)
		}
		if _, err := ours.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("write: %v", err)
		}
	}
}

func TestCloseEndsWhatWaits(t *testing.T) {
	ours, theirs := dataPair(t)
	read := make(chan error)
	go func() {
		_, err := ours.Read(make([]byte, 1))
		read <- err
	}()
	for polled := false; !polled; {
		ours.mu.Lock()
		polled = ours.polled != nil
		ours.mu.Unlock()
	}
	if err := ours.Close(); err != nil {
		t.Error(err)
	}
	if err := <-read; !errors.Is(err, net.ErrClosed) {
		t.Errorf("read: %v", err)
	}
	for what, err := range map[string]error{
		"read":    func() error { _, err := ours.Read(make([]byte, 1)); return err }(),
		"write":   func() error { _, err := ours.Write([]byte("x")); return err }(),
		"control": dataSocket{ours}.Control(func(uintptr) { t.Error("a closed socket was handed out") }),
		"close":   ours.Close(),
	} {
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s after Close: %v", what, err)
		}
	}
	if _, err := theirs.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the other end: %v", err)
	}
}

func TestAPassivePortThatIsClosed(t *testing.T) {
	server := Server{}
	server.SetSettings(Settings{})
	for _, waits := range []bool{false, true} {
		port, err := server.passivePort(loopback, loopback)
		if err != nil {
			t.Fatal(err)
		}
		opened := make(chan error)
		open := func() { _, err := port.open(patience); opened <- err }
		if waits {
			go open()
			for polled := false; !polled; {
				port.mu.Lock()
				polled = port.file != nil
				port.mu.Unlock()
			}
		}
		port.close()
		port.close() // once is enough
		if !waits {
			go open()
		}
		if err := <-opened; err == nil {
			t.Error("somebody came")
		}
		if _, err := port.openNow(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("afterwards: %v", err)
		}
	}
	if n := server.listening.Load(); n != 0 {
		t.Errorf("%d ports are open", n)
	}
}

// What package files splices, in a hurry and not, is what was sent.
func TestALargeUploadOverADataConnection(t *testing.T) {
	base := t.TempDir()
	tree, err := files.Open(filepath.Join(base, "root"), files.Options{State: filepath.Join(base, "state")})
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	content := make([]byte, 12_345_678)
	rand.NewChaCha8([32]byte{}).Read(content)
	ours, theirs := dataPair(t)
	var sender sync.WaitGroup
	sender.Go(func() {
		for left := content; len(left) > 0; {
			n, err := theirs.Write(left[:min(len(left), 1<<20)])
			if err != nil {
				t.Error(err)
				break
			}
			left = left[n:]
		}
		theirs.Close()
	})
	u, err := tree.Upload("/f", files.UploadOptions{Pace: files.Pace{Timeout: patience}})
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		inAHurry(ours, 0)
		if _, err = u.ReadFrom(ours); !errors.Is(err, files.ErrWouldWait) {
			break
		}
	}
	if ours.hurry = nil; errors.Is(err, files.ErrWouldWait) {
		_, err = u.ReadFrom(ours)
	}
	sender.Wait()
	if err != nil || !ours.ended || u.Received() != int64(len(content)) {
		t.Fatalf("%d bytes, %v, ended: %v", u.Received(), err, ours.ended)
	}
	if err := u.Publish(); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(base, "root", "f")); err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// The client is woken once for both.
func TestTheEndOfADownloadComesWithItsLastBytes(t *testing.T) {
	s := start(t)
	s.write("/f", strings.Repeat("x", 1000))
	for _, download := range []string{"TYPE I,RETR /f", "TYPE A,RETR /f", "TYPE A,LIST /f"} {
		t.Run(download, func(t *testing.T) {
			c := s.as("phoneacc")
			kind, command, _ := strings.Cut(download, ",")
			c.want(kind, "200 *")
			d := c.data()
			c.want(command, "150 *")
			if got, err := io.ReadAll(d); len(got) == 0 || err != nil {
				t.Fatalf("%q, %v", got, err)
			}
			raw, err := d.SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			var info *unix.TCPInfo
			if cerr := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) }); cerr != nil || err != nil {
				t.Fatal(cerr, err)
			}
			if got, want := info.Segs_in, uint32(2); got != want { // the first one connected
				t.Errorf("%d segments came, want %d", got, want)
			}
		})
	}
}

// downloads are some of each kind: what is sent in a hurry, and what is not.
var downloads = []struct {
	name, kind, command string
	secure              bool
}{
	{"binary", "TYPE I", "RETR /f", false},
	{"ASCII", "TYPE A", "RETR /f", false},
	{"a listing", "TYPE A", "LIST /", false},
	{"TLS", "TYPE I", "RETR /f", true},
}

// fetched is a client that has read all that it fetched, and its data connection, not yet closed.
func (s *server) fetched(kind, command string, secure bool) (*conn, net.Conn) {
	s.t.Helper()
	c := s.dial()
	if secure {
		c.upgrade()
	}
	c.login("phoneacc")
	c.want(kind, "200 *")
	tcp := c.data()
	c.want(command, "150 *")
	if got, err := io.ReadAll(c.secured(tcp)); len(got) == 0 || err != nil {
		s.t.Fatalf("%q, %v", got, err)
	}
	return c, tcp
}

// A client that reads one reply at a time never sees a second one that comes with the first.
func TestAClientHasReadWhatItFetchedWhenItIsToldSo(t *testing.T) {
	for _, tt := range downloads {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t, secure, func(o *setup) { o.delays.lastWord = patience })
			s.write("/f", "content")
			c, data := s.fetched(tt.kind, tt.command, tt.secure)
			c.tcp.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			if n, err := c.tcp.Read(make([]byte, 1)); n > 0 || c.in.Buffered() > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("before the client ends the connection: %d and %d bytes, %v", n, c.in.Buffered(), err)
			}
			data.Close()
			c.check("the end", c.reply(), "226 *")
		})
	}
}

// Others end the data connection when they are told that it is over.
func TestAClientThatWantsToBeToldFirstIsWaitedForNoLonger(t *testing.T) {
	for _, tt := range downloads {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t, secure)
			s.write("/f", "content")
			c, _ := s.fetched(tt.kind, tt.command, tt.secure)
			c.check("the end", c.reply(), "226 *")
		})
	}
}
