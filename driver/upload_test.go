package driver

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

func TestUploads(t *testing.T) {
	inEachMode(t, func(t *testing.T, s *server, dial func(string) *conn) {
		s.mkdir("/dir")
		s.write("/old", "0123456789")
		c := dial("phoneacc")
		// RFC 959 section 3.1.1.1: ASCII is the default; its line ends are converted.
		c.store("/text", "a\r\nb\n")
		s.wantContent("/text", "a\nb\n")
		if got := c.fetch("RETR /text"); got != "a\r\nb\r\n" {
			t.Errorf("RETR in ASCII: %q", got)
		}
		c.want("TYPE I", "200 *")
		c.store("/text", "a\r\nb\n")
		s.wantContent("/text", "a\r\nb\n")
		c.check("empty", c.upload("STOR /empty", ""), "226 transfer complete, 0 bytes received")
		s.wantContent("/empty", "")
		c.check("APPE", c.upload("APPE /old", "ab"), "226 transfer complete, 2 bytes received")
		s.wantContent("/old", "0123456789ab")
		c.check("APPE of a new one", c.upload("APPE /appended", "ab"), "226 *")
		s.wantContent("/appended", "ab")
		// RFC 3659 section 5: REST goes with STOR, too.
		c.want("REST 4", "350 *")
		c.check("STOR after REST", c.upload("STOR /old", "xy"), "226 transfer complete, 2 bytes received")
		s.wantContent("/old", "0123xy")
		c.store("/old", "not at 4")
		s.wantContent("/old", "not at 4")
		c.want("REST 100", "350 *")
		c.check("STOR beyond the end", c.upload("STOR /old", "xy"), "554 /old: REST beyond the end of the file")
		c.want("REST 3", "350 *")
		c.check("APPE after REST", c.upload("APPE /old", "!"), "226 *")
		s.wantContent("/old", "not at 4!")
		for command, want := range map[string]string{
			"STOR /dir":         "550 /dir: is a directory",
			"STOR /":            "550 /: is a directory",
			"STOR /none/f":      "550 /none/f: no such file or directory",
			"STOR /old/f":       "550 /old/f: a part of the path is no directory",
			"APPE /dir":         "550 /dir: is a directory",
			"STOR":              "501 *",
			"STOR  ":            "501 *",
			"STOR /old\x00":     "501 *",
			"STOR /.locks.json": "550 /.locks.json: is served by the server itself and cannot be changed",
		} {
			c.check(command, c.upload(command, "x"), want)
		}
		c.want("REST -1", "501 *")
		c.want("REST x", "501 *")
	})
}

// RFC 1123 section 4.1.2.9: the 150 of STOU tells the name.
func TestStouFindsAFreeName(t *testing.T) {
	inEachMode(t, func(t *testing.T, s *server, dial func(string) *conn) {
		s.write("/f", "old")
		s.mkdir("/dir")
		s.link("dir", "/way")
		c := dial("phoneacc")
		stou := func(command, content string) string {
			t.Helper()
			nc := c.data()
			first := c.ask(command)
			if !strings.HasPrefix(first, "150 ") {
				return first
			}
			c.check(command, first, "150 FILE: /*")
			d := c.secured(nc)
			io.WriteString(d, content)
			d.Close()
			c.check(command, c.reply(), "226 *")
			return strings.TrimPrefix(first, "150 FILE: ")
		}
		for command, pattern := range map[string]string{
			"STOU /new": "/new", "STOU /f": "/f.#", "STOU": "/ftp", "STOU /dir": "/dir/ftp", "STOU dir": "/dir/ftp.#", "STOU /way": "/way/ftp*",
		} {
			name := stou(command, command)
			if command == "STOU /dir" || command == "STOU dir" {
				pattern = "/dir/ftp*" // in either order
			}
			if !fits(pattern, name) {
				t.Errorf("%s: %s", command, name)
			}
			s.wantContent(name, command)
		}
		s.wantContent("/f", "old")
		if got := stou("STOU /locks/x", ""); got != "/locks/x" { // a file may have a lock's name
			t.Errorf("STOU /locks/x: %s", got)
		}
		c.want("MKD /locks/y", "257 *")
		if got := stou("STOU /locks/y", "inside"); got != "/locks/y/ftp" {
			t.Errorf("STOU /locks/y: %s", got)
		}
	})
}

// ALLO announces, so that an upload that was cut off is known to be one.
func TestAlloThatIsNotReached(t *testing.T) {
	inEachMode(t, func(t *testing.T, s *server, dial func(string) *conn) {
		s.write("/f", "old")
		c := dial("phoneacc")
		c.play(`
			C: TYPE I
			S: 200 *
			C: ALLO 5
			S: 200 *`)
		c.check("STOR", c.upload("STOR /f", "1234"), "426 /f: fewer bytes than ALLO announced: 4 of 5")
		s.wantContent("/f", "old")
		c.want("ALLO 5", "200 *")
		c.check("STOR", c.upload("STOR /f", "12345"), "226 *")
		c.check("the next", c.upload("STOR /f", "1"), "226 *")
		// In ASCII the count of the client is that of its own line ends.
		c.want("TYPE A", "200 *")
		c.want("ALLO 5 R 80", "200 *")
		c.check("STOR", c.upload("STOR /f", "1\n"), "226 *")
		s.wantContent("/f", "1\n")
		for _, bad := range []string{"ALLO", "ALLO x", "ALLO -1", "ALLO \t", "ALLO 99999999999999999999"} {
			c.want(bad, "501 *")
		}
		c.want("ALLO 9223372036854775807", "452 *")
	})
}

func TestAReaderSeesTheOldFileOrTheNewOne(t *testing.T) {
	s := start(t)
	s.write("/f", "old")
	a, b := s.as("phoneacc"), s.as("other")
	d := a.data()
	a.want("STOR /f", "150 *")
	d.Write([]byte("new, in "))
	if got := b.fetch("RETR /f"); got != "old" {
		t.Errorf("RETR during the upload: %q", got)
	}
	if got := b.fetch("NLST -a"); !fits(".locks.json\r\never\r\nf\r\ngone\r\nhome\r\nlocks\r\nopen\r\n", got) {
		t.Errorf("the temporary shows: %q", got)
	}
	d.Write([]byte("two pieces"))
	d.Close()
	a.check("STOR", a.reply(), "226 *")
	if got := b.fetch("RETR /f"); got != "new, in two pieces" {
		t.Errorf("RETR after the upload: %q", got)
	}
}

// A killed client's kernel ends both of its connections, in any order.
func TestAKilledUploaderPublishesNothing(t *testing.T) {
	for _, tt := range []struct {
		name string
		kill func(c *conn, data net.Conn)
	}{
		{"data first", func(c *conn, data net.Conn) { data.Close(); c.tcp.Close() }},
		{"control first", func(c *conn, data net.Conn) { c.tcp.Close(); data.Close() }},
		{"control reset", func(c *conn, data net.Conn) { c.reset(); data.Close() }},
		{"data first, control reset", func(c *conn, data net.Conn) { data.Close(); c.reset() }},
		{"data reset", func(c *conn, data net.Conn) { data.(*net.TCPConn).SetLinger(0); data.Close(); c.tcp.Close() }},
		{"control only", func(c *conn, _ net.Conn) { c.tcp.Close() }},
		{"half closed", func(c *conn, _ net.Conn) { c.tcp.CloseWrite() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, typ := range []string{"I", "A"} {
				// So long that the second connection's end is seen however busy the machine is.
				s := start(t, func(o *setup) { o.settings.HangUp = patience })
				s.write("/f", "old")
				c := s.as("phoneacc")
				c.want("TYPE "+typ, "200 *")
				d := c.data()
				c.want("STOR /f", "150 *")
				d.Write([]byte("half a\r\nfi"))
				tt.kill(c, d)
				s.alone()
				s.wantContent("/f", "old")
			}
		})
	}
}

func TestABrokenDataConnectionPublishesNothing(t *testing.T) {
	s := start(t, secure)
	s.write("/f", "old")
	for _, tt := range []struct {
		name, reply string
		private     bool
		typ         string
	}{
		{"binary", "426 /f: the data connection was cut", false, "I"},
		{"ASCII", "426 /f: the data connection was cut", false, "A"},
		{"TLS, reset", "426 /f: the data connection was cut", true, "I"},
		{"TLS, ASCII, reset", "426 /f: the data connection was cut", true, "A"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := s.dial()
			if tt.private {
				c.upgrade()
			}
			c.login("phoneacc")
			c.want("TYPE "+tt.typ, "200 *")
			nc := c.data()
			c.want("STOR /f", "150 *")
			c.secured(nc).Write([]byte("a whole line\r\nand half of"))
			nc.SetLinger(0)
			nc.Close()
			c.check("STOR", c.reply(), tt.reply)
			s.wantContent("/f", "old")
			c.store("/g", "the session goes on")
		})
	}
}

// Without its close_notify a TLS stream may have been cut by anybody (RFC 8446 section 6.1).
func TestAnUploadUnderTLSWantsACloseNotify(t *testing.T) {
	s := start(t, tlsRequired)
	s.write("/f", "old")
	c := s.dial()
	c.upgrade()
	c.login("phoneacc")
	nc := c.data()
	c.want("STOR /f", "150 *")
	c.secured(nc).Write([]byte("new"))
	nc.Close()
	c.check("STOR", c.reply(), "426 /f: the data connection ended without a close_notify of TLS")
	s.wantContent("/f", "old")
}

func TestAnActiveUploadUnderTLSWantsACloseNotify(t *testing.T) {
	s := start(t, tlsRequired, func(o *setup) { o.settings.HangUp = patience }) // with one, nothing is waited for
	s.write("/f", "old")
	c := s.dial()
	c.upgrade()
	c.login("phoneacc")
	l := activeListener(t, "127.0.0.1:0")
	for _, meant := range []bool{false, true} {
		c.want("PORT 127,0,0,1,"+bytesOfPort(l), "200 *")
		c.want("STOR /f", "150 *")
		nc, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		data := c.secured(nc)
		if _, err := io.WriteString(data, "new"); err != nil {
			t.Fatal(err)
		}
		if meant {
			data.Close()
			c.check("STOR", c.reply(), "226 *")
			s.wantContent("/f", "new")
			continue
		}
		nc.Close()
		c.check("STOR", c.reply(), "426 /f: the data connection ended without a close_notify of TLS")
		s.wantContent("/f", "old")
	}
}

func TestATransferThatStandsStillIsGivenUp(t *testing.T) {
	t.Parallel()
	s := start(t, secure, func(o *setup) { o.settings.DataTimeout = 200 * time.Millisecond })
	if err := os.WriteFile(filepath.Join(s.root, "large"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(s.root, "large"), 64<<20); err != nil {
		t.Fatal(err)
	}
	s.write("/f", "old")
	for _, private := range []bool{false, true} {
		c := s.dial()
		if private {
			c.upgrade()
		}
		c.login("phoneacc")
		c.want("MKD /locks/a", "257 *")
		for _, command := range []string{"STOR /f", "STOR /locks/a/note", "RETR /large"} {
			c.want("TYPE I", "200 *")
			nc := c.data()
			c.want(command, "150 *")
			began := time.Now()
			if d := c.secured(nc); strings.HasPrefix(command, "STOR") {
				d.Write([]byte("new"))
			} else {
				d.Read(make([]byte, 1))
			}
			c.check(command, c.reply(), "426 *: the data connection stood still for too long")
			// crypto/tls would take five seconds to say goodbye to a client that does not read
			if d := time.Since(began); d > 4*time.Second {
				t.Errorf("%s took %v", command, d)
			}
			nc.Close()
		}
		c.want("RMD /locks/a", "250 *")
		s.wantContent("/f", "old")
	}
}

// A link is replaced itself, so that a name can stand for one file only.
func TestAnUploadReplacesALinkAndNotWhatItLeadsTo(t *testing.T) {
	s := start(t)
	s.write("/target", "old")
	s.link("target", "/link")
	s.link("locks", "/dirlink")
	c := s.as("phoneacc")
	c.store("/link", "new")
	s.wantContent("/target", "old")
	s.wantContent("/link", "new")
	c.check("STOR", c.upload("STOR /dirlink", "x"), "550 /dirlink: is a directory")
	c.store("/dirlink/f", "x")
	s.wantContent("/locks/f", "x")
	c.want("MKD /locks/a", "257 *")
	s.link("locks/a", "/lock")
	c.check("STOU", c.upload("STOU /lock", "x"), "226 *")
	c.store("/lock/note", "x") // the same as /locks/a/note
	if got := c.fetch("NLST /locks/a"); got != "/locks/a/ftp\r\n/locks/a/note\r\n" {
		t.Errorf("in the lock: %q", got)
	}
}

// An empty directory that a program on the host has made is its lock, and one with something in it is nobody's.
func TestWhatTheHostHasMadeWithTheNameOfALock(t *testing.T) {
	s := start(t)
	c := s.as("boss")
	s.mkdir("/new_lock")
	s.mkdir("/old_lock/dir")
	s.write("/old_lock/file", "x")
	s.write("/file", "x")
	c.want("MKD /new_lock", "550 /new_lock: held by host *") // now it is noticed
	for _, command := range []string{"STOR /new_lock/f", "APPE /new_lock/f", "STOU /new_lock", "STOU /new_lock/f"} {
		c.check(command, c.upload(command, "x"), "550 *: lies in the lock /new_lock, which you do not hold")
	}
	c.play(`
		C: MKD /new_lock/dir
		S: 550 /new_lock/dir: lies in the lock /new_lock, *
		C: RNFR /file
		S: 350 *
		C: RNTO /new_lock/file
		S: 550 /new_lock/file: lies in the lock /new_lock, *
		C: RNFR /new_lock
		S: 550 /new_lock: is a lock: *
		C: MFMT 20200101000000 /new_lock
		S: 550 /new_lock: is a lock: *
		C: CWD /new_lock
		S: 550 /new_lock: held by host *
		C: MKD /old_lock
		S: 550 /old_lock: a directory that is not empty has that name, so it is no lock
		C: CWD /old_lock
		S: 250 *
		C: RMD dir
		S: 250 *
		C: MKD dir
		S: 257 "/old_lock/dir" created
		C: RNFR file
		S: 350 *
		C: RNTO dir/file
		S: 250 *
		C: DELE dir/file
		S: 250 *
		C: CWD /
		S: 250 *
		C: RMD /old_lock
		S: 550 /old_lock: the directory is not empty
		C: RNFR /old_lock
		S: 350 *
		C: RNTO /pictures
		S: 250 *`)
	c.store("/pictures/f", "x")
	if got := onDisk(t, filepath.Join(s.root, "new_lock")); len(got) > 0 {
		t.Errorf("in the lock's directory: %q", got)
	}
}

func TestNewFilesAreNotExecutable(t *testing.T) {
	s := start(t)
	s.write("/old", "x")
	if err := os.Chmod(filepath.Join(s.root, "old"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := s.as("phoneacc")
	for name, want := range map[string]os.FileMode{"/new": 0o644, "/old": 0o600} {
		c.store(name, "y")
		if info, err := os.Stat(filepath.Join(s.root, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %v", name, info.Mode(), err, want)
		}
	}
}

// The directory gets another name while the upload is on its way, and in it the file's name is a lock's.
func TestAnUploadWhoseDirectoryIsRenamed(t *testing.T) {
	eachMode(t, func(t *testing.T, s *server) {
		rules, err := lock.NewRules([]lock.Rule{{Match: "/b/*"}})
		if err != nil {
			t.Fatal(err)
		}
		s.mkdir("/a")
		a, b := s.as("phoneacc"), s.as("other")
		nc := a.data()
		a.want("STOR /a/f", "150 *")
		b.play(`
			C: RNFR /a
			S: 350 *
			C: RNTO /b
			S: 250 *`)
		if err := s.table.SetRules(t.Context(), rules); err != nil {
			t.Fatal(err)
		}
		nc.Write([]byte("x"))
		nc.Close()
		a.check("STOR", a.reply(), "226 *") // nobody holds that lock
		s.wantContent("/b/f", "x")
		a.want("DELE /b/f", "250 *")
		nc = a.data()
		a.want("STOR /b/f", "150 *")
		b.want("MKD /b/f", "257 *")
		nc.Close()
		a.check("STOR", a.reply(), "550 /b/f: is a lock: *")
		s.wantContent("/b/f", "(none)")
	})
}
