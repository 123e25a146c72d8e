package driver

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// activeListener is where a client has the server connect to.
type activeListener struct {
	net.Listener
	t    *testing.T
	PORT string // the command
}

func listen(t *testing.T) activeListener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	p := l.Addr().(*net.TCPAddr).Port
	return activeListener{l, t, fmt.Sprintf("PORT 127,0,0,1,%d,%d", p>>8, p&255)}
}

func (l activeListener) accept() *net.TCPConn {
	l.t.Helper()
	nc, err := l.Accept()
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(patience))
	return nc.(*net.TCPConn)
}

// opened begins a transfer and returns its data connection, without TLS.
func (c *conn) opened(command string, active bool) *net.TCPConn {
	c.t.Helper()
	if !active {
		nc := c.data()
		c.want(command, "150 *")
		return nc
	}
	l := listen(c.t)
	c.want(l.PORT, "200 *")
	c.want(command, "150 *")
	return l.accept()
}

// begun begins an upload, which ends when its data connection does.
func (c *conn) begun(command, content string) net.Conn {
	c.t.Helper()
	d := c.secured(c.data())
	c.want(command, "150 *")
	if _, err := io.WriteString(d, content); err != nil {
		c.t.Fatal(err)
	}
	return d
}

// RFC 959 section 3.2: each transfer has its own data connection. A refused transfer leaves it for the next one. RFC 3659
// section 5: REST is for the command behind it, whatever becomes of that.
func TestATransferWantsADataConnectionOfItsOwn(t *testing.T) {
	s := start(t)
	s.write("/f", "x")
	c := s.as("phoneacc")
	unprepared := func(commands ...string) {
		t.Helper()
		for _, command := range commands {
			c.want(command, "425 use PASV, EPSV, PORT or EPRT first")
		}
	}
	unprepared("RETR /f", "STOR /f", "APPE /f", "STOU", "LIST", "NLST", "MLSD")
	c.fetch("RETR /f")
	unprepared("RETR /f", "LIST")
	data := c.data()
	c.want("RETR /none", "550 /none: no such file or directory")
	c.want("STOR /none/f", "550 *")
	c.want("RETR /f", "150 *")
	if got, err := io.ReadAll(data); string(got) != "x" || err != nil {
		t.Errorf("over the data connection of a refused transfer: %q, %v", got, err)
	}
	data.Close()
	c.check("RETR", c.reply(), "226 *")
	unprepared("LIST")
	active := listen(t)
	c.want(active.PORT, "200 *")
	c.want("RETR /none", "550 *")
	c.send("RETR /f\r\n")
	active.accept()
	c.check("RETR", c.reply(), "150 *")
	c.check("RETR", c.reply(), "226 *")
	c.want("REST 1", "350 *")
	if got := c.fetch("LIST /f"); !strings.HasPrefix(got, "-rw") {
		t.Errorf("LIST after REST: %q", got)
	}
	if got := c.fetch("RETR /f"); got != "x" {
		t.Errorf("RETR after a REST that LIST has used: %q", got)
	}
	c.want("REST 1", "350 *")
	unprepared("RETR /f")
	if got := c.fetch("RETR /f"); got != "x" {
		t.Errorf("RETR after a lost REST: %q", got)
	}
	c.port()
	c.want("ABOR", "226 *")
	unprepared("RETR /f")
}

func TestDataConnectionsThatCannotBe(t *testing.T) {
	t.Parallel()
	l := listen(t)
	taken := uint16(l.Addr().(*net.TCPAddr).Port)
	s := start(t, func(o *setup) {
		o.settings.DataTimeout = time.Second
		o.settings.FirstPort, o.settings.LastPort = taken, taken
	})
	s.write("/f", "old")
	c := s.as("phoneacc")
	c.transcript(`
		C: PASV
		S: 425 no port is free for a data connection
		C: EPSV
		S: 425 no port is free for a data connection
		C: LIST
		S: 425 *`)
	settings := *s.driver.settings.Load()
	settings.FirstPort, settings.LastPort = 0, 0
	s.driver.SetSettings(settings)
	c.port() // and nobody connects
	c.transcript(`
		C: STOR /f
		S: 425 /f: cannot open the data connection
		C: NOOP
		S: 200 OK`)
	s.wantContent("/f", "old")
}

// Neither the client's data nor its locks outlive a session that took no leave.
func TestTheEndOfTheControlConnectionCutsTheDataConnection(t *testing.T) {
	s := start(t)
	s.sparse("/large")
	for _, begin := range []func(c *conn){
		func(c *conn) { c.opened("RETR /large", false) },
		func(c *conn) { c.opened("RETR /large", true) },
		func(c *conn) { c.port(); c.send("STOR /f\r\n") },
	} {
		for _, end := range []func(c *conn){
			func(c *conn) { c.tcp.Close() },
			(*conn).reset,
			// A client may end its side of the control connection and listen on.
			func(c *conn) { c.tcp.CloseWrite(); c.check("the end", c.reply(), "426 *hung up*"); c.ended() },
		} {
			c := s.as("phoneacc")
			c.want("MKD /gone/a", "257 *")
			began := time.Now()
			begin(c)
			end(c)
			s.alone()
			if s.held("/gone/a") {
				t.Error("the lock is held still")
			}
			if d := time.Since(began); d > s.driver.connectWithin()/2 {
				t.Errorf("that took %v", d)
			}
		}
	}
	s.wantContent("/f", "(none)")
}

func TestATransferWithTwoDataConnectionsIsRefused(t *testing.T) {
	s := start(t)
	s.write("/f", "old")
	c := s.as("phoneacc")
	dial := func(port, content string) net.Conn {
		nc, err := net.Dial("tcp", port)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		io.WriteString(nc, content)
		return nc
	}
	const refused = "426 /f: two data connections came from your address, and one of them is somebody else's"
	for range 20 {
		port := c.port()
		dial(port, "the thief's").Close()
		own := dial(port, "new")
		c.want("STOR /f", "150 *")
		own.Close()
		c.check("after the thief", c.reply(), refused)
		s.wantContent("/f", "old")

		port = c.port()
		own = dial(port, "new")
		c.want("STOR /f", "150 *")
		dial(port, "")
		own.Close()
		c.check("before the thief", c.reply(), refused)
		s.wantContent("/f", "old")

		port = c.port()
		thief := dial(port, "")
		dial(port, "")
		c.want("RETR /f", "150 *")
		if got, _ := io.ReadAll(thief); len(got) != 0 {
			t.Errorf("the thief got %q", got)
		}
		c.check("a download", c.reply(), refused)
	}
	c.store("/f", "new")
	s.wantContent("/f", "new")
}

// With SessionReuse a data connection is the client's own, or none: what resumes another session of the same client, or none,
// sends and gets nothing.
func TestADataConnectionMustResumeTheSessionOfItsControlConnection(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(tls.VersionName(version), func(t *testing.T) {
			s := start(t, tlsRequired, func(o *setup) { o.sessionReuse = true })
			s.write("/f", "old")
			session := func() (*conn, *tls.Config) {
				config := &tls.Config{InsecureSkipVerify: true, ClientSessionCache: tls.NewLRUClientSessionCache(4), ServerName: "localhost", MaxVersion: version}
				c := s.dial()
				c.upgradeWith(config)
				c.login("phoneacc")
				return c, config
			}
			c, own := session()
			_, others := session()
			const refused = "522 /f: the data connection must resume the TLS session; under TLS 1.2 curl, PHP and Ruby cannot"
			for name, tt := range map[string]struct {
				config         *tls.Config
				reply, content string
			}{
				"a session of its own":               {&tls.Config{InsecureSkipVerify: true, MaxVersion: version}, refused, "old"},
				"that of another control connection": {others, refused, "old"},
				"its own":                            {own, "226 *", "new"},
			} {
				for range 3 { // a refused connection gets nothing that lets the next one in
					s.write("/f", "old")
					d := tls.Client(c.data(), tt.config)
					c.want("STOR /f", "150 *")
					d.Write([]byte("new"))
					d.Close()
					c.check(name, c.reply(), tt.reply)
					s.wantContent("/f", tt.content)
					d = tls.Client(c.data(), tt.config)
					c.want("RETR /f", "150 *")
					if got, _ := io.ReadAll(d); string(got) != "new" && tt.content == "new" || len(got) > 0 && tt.content == "old" {
						t.Errorf("%s: got %q", name, got)
					}
					d.Close()
					c.check(name, c.reply(), tt.reply)
				}
			}
		})
	}
}

func TestDownloads(t *testing.T) {
	downloads := `
		- write /text a\nb\r\nc
		- mkdir /d
		- link /link text
		a RETR /text => 226 * >>> a\r\nb\r\nc
		a TYPE I => 200 *
		a RETR /link => 226 * >>> a\nb\r\nc
		a REST 2 => 350 *
		a RETR /text => 226 * >>> b\r\nc
		a REST 6 => 350 *
		a RETR /text => 226 *
		a REST 7 => 350 *
		a RETR /text => 554 /text: REST beyond the end of the file
		a RETR /d => 550 /d: is a directory
		a RETR /none => 550 /none: no such file or directory
		a RETR / => 550 /: is a directory`
	plays(t, downloads)
	plays(t, downloads, tlsRequired)

	// A client that has enough and hangs up: the transfer was broken, the session goes on.
	inBothWires(t, func(t *testing.T, s *server) {
		s.sparse("/large")
		c := s.as("phoneacc")
		nc := c.data()
		c.want("RETR /large", "150 *")
		io.ReadFull(c.secured(nc), make([]byte, 10))
		nc.SetLinger(0)
		nc.Close()
		c.transcript("S: 426 /large: the data connection was cut")
		c.want("NOOP", "200 *")
	})
}

// So much that all ways of moving bytes are used: through this process, and within the kernel.
func TestLargeTransfersArriveAsTheyWereSent(t *testing.T) {
	content := make([]byte, 3_456_789)
	rand.NewChaCha8([32]byte{}).Read(content)
	inBothWires(t, func(t *testing.T, s *server) {
		c := s.as("phoneacc")
		c.want("TYPE I", "200 *")
		c.store("/f", string(content))
		if got, err := os.ReadFile(filepath.Join(s.root, "f")); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%d bytes came, %v", len(got), err)
		}
		if got := c.fetch("RETR /f"); got != string(content) {
			t.Errorf("%d bytes went back", len(got))
		}
		c.want("REST 1000000", "350 *")
		c.store("/f", string(content[1_000_000:]))
		if got, err := os.ReadFile(filepath.Join(s.root, "f")); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%d bytes came after REST, %v", len(got), err)
		}
	})
}

// The file becomes shorter while it is sent: a client must not take what came for all.
func TestADownloadOfAFileThatShrinksIsNoSuccess(t *testing.T) {
	for _, kind := range []string{"I", "A"} {
		s := start(t)
		s.sparse("/large")
		c := s.as("phoneacc")
		c.want("TYPE "+kind, "200 *")
		nc := c.data()
		c.want("RETR /large", "150 *")
		if _, err := io.ReadFull(nc, make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(filepath.Join(s.root, "large"), 8<<20); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, nc) // the reply tells how it ended
		c.check("TYPE "+kind, c.reply(), "451 /large: the file has become shorter meanwhile")
	}
}

func TestATransferThatStandsStillIsGivenUp(t *testing.T) {
	t.Parallel()
	s := start(t, secure, func(o *setup) { o.settings.DataTimeout = 200 * time.Millisecond })
	s.sparse("/large")
	s.write("/f", "old")
	for _, wire := range []string{"in the clear", "TLS", "TLS without a handshake"} {
		c := s.dial()
		if wire != "in the clear" {
			c.upgrade()
		}
		c.login("phoneacc")
		c.want("TYPE I", "200 *")
		for _, command := range []string{"STOR /f", "RETR /large"} {
			for _, active := range []bool{false, true} {
				nc := c.opened(command, active)
				began := time.Now()
				switch d := c.secured(nc); {
				case wire == "TLS without a handshake":
				case command == "STOR /f":
					d.Write([]byte("new"))
				default:
					d.Read(make([]byte, 1))
				}
				c.check(wire+", "+command, c.reply(), "426 *: the data connection stood still for too long")
				// crypto/tls would take five seconds to say goodbye to a client that does not read
				if d := time.Since(began); d > 4*time.Second {
					t.Errorf("%s took %v", command, d)
				}
				nc.Close()
			}
		}
		s.wantContent("/f", "old")
	}
}

// A client that takes in a byte now and then does not hold a download for ever. An upload may be slow.
func TestOnlyADownloadThatIsTooSlowIsEnded(t *testing.T) {
	s := start(t, func(o *setup) { o.settings.DataMinRate = 1000 })
	s.driver.rateOver = 300 * time.Millisecond
	s.sparse("/big")
	uploader := s.as("phoneacc")
	upload := uploader.data()
	uploader.want("STOR /f", "150 *")

	c := s.as("phoneacc")
	unread := c.data()
	defer unread.Close()
	if err := unread.SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	c.want("RETR /big", "150 *")
	c.check("RETR", c.reply(), "426 /big: the data connection was too slow for too long")

	// The upload is older than the download, and has moved nothing. A client sends what it gets, such as 15 bytes each 10 seconds.
	if _, err := upload.Write([]byte("new")); err != nil {
		t.Fatal(err)
	}
	upload.Close()
	uploader.check("STOR", uploader.reply(), "226 *")
	s.wantContent("/f", "new")

	began := time.Now()
	p := pace{since: began}
	for i, moved := range []uint64{100, 1300, 1400, 1700} { // by then, a second behind each other
		if slow := p.tooSlow(s.driver, moved, began.Add(time.Duration(i+1)*time.Second)); slow != (i != 1) {
			t.Errorf("%d bytes after %d s: %t", moved, i+1, slow)
		}
	}
}
