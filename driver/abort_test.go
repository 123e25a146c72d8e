package driver

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// sparse makes a file larger than what a loopback connection holds.
func (s *server) sparse(name string) {
	s.t.Helper()
	s.write(name, "")
	if err := os.Truncate(filepath.Join(s.root, name), 64<<20); err != nil {
		s.t.Fatal(err)
	}
}

// RFC 959 section 4.1.3: 426 for the transfer and 226 for ABOR, or 226 alone if there is none.
func TestAbor(t *testing.T) {
	inEachMode(t, func(t *testing.T, s *server, dial func(string) *conn) {
		s.write("/f", "old")
		s.sparse("/large")
		c := dial("phoneacc")
		c.want("TYPE I", "200 *")
		c.want("ABOR", "226 *")
		c.port()
		c.want("ABOR", "226 *")
		c.want("RETR /f", "425 use PASV, EPSV, PORT or EPRT first")

		began := time.Now()
		for _, command := range []string{"STOR /f", "RETR /large", "LIST"} { // nobody comes for the data
			c.port()
			c.send(command + "\r\nABOR\r\n")
			c.play(`
				S: 426 *: aborted by ABOR
				S: 226 *
				C: NOOP
				S: 200 OK`)
		}
		if d := time.Since(began); d > s.driver.connectWithin()/2 {
			t.Errorf("ABOR waited for the data connection: %v", d)
		}

		nc := c.data()
		c.want("STOR /f", "150 *")
		c.secured(nc).Write([]byte("new"))
		c.play(`
			C: ABOR
			S: 426 /f: aborted by ABOR
			S: 226 *
			C: NOOP
			S: 200 OK`)
		s.wantContent("/f", "old")

		// active connections are cut as quickly
		l := activeListener(t, "127.0.0.1:0")
		for _, active := range []bool{false, true} {
			var nc net.Conn
			if active {
				c.want("PORT 127,0,0,1,"+bytesOfPort(l), "200 *")
			} else {
				nc = c.data()
			}
			began := time.Now()
			c.want("RETR /large", "150 *")
			if active {
				var err error
				if nc, err = l.Accept(); err != nil {
					t.Fatal(err)
				}
			}
			io.ReadFull(c.secured(nc), make([]byte, 10))
			c.play(`
				C: ABOR
				S: 426 /large: aborted by ABOR
				S: 226 *`)
			nc.Close()
			if d := time.Since(began); d > 4*time.Second {
				t.Errorf("ABOR took %v, active: %t", d, active)
			}
		}

		if got := c.fetch("RETR /f"); got != "old" {
			t.Errorf("after ABOR: %q", got)
		}
		c.want("ABOR", "226 *")
		c.store("/f", "new")
		s.wantContent("/f", "new")
	})
}

// Once a file is being published the transfer ends well, and ABOR is too late.
func TestAborThatComesTooLate(t *testing.T) {
	s := start(t)
	c := s.as("phoneacc")
	c.want("MKD /locks/a", "257 *")
	goOn := s.publishing(c, "/locks/a/note")
	c.send("ABOR\r\nNOOP\r\n")
	goOn()
	c.play(`
		S: 226 transfer complete, 1 bytes received
		S: 226 *
		S: 200 OK`)
}

func TestStatDuringATransfer(t *testing.T) {
	s := start(t)
	s.sparse("/large")
	c := s.as("phoneacc")
	for _, command := range []string{"RETR /large", "STOU /x", "STOR /y"} {
		nc := c.data()
		c.want(command, "150 *")
		c.play(`
			C: STAT
			S: 211-ftplockd
			S:  connected from 127.0.0.1
			S:  type ASCII
			S:  logged in as phoneacc
			S:  in /
			S:  transferring /*
			S: 211 End of status`)
		nc.Close()
		c.reply()
	}
	// before the data connection stands, too, while the library opens what is transferred
	for range 20 {
		c.port()
		c.send("STOU /x\r\nSTAT\r\nABOR\r\n")
		c.play(`
			S: 211-*
			S: *
			S: *
			S: *
			S: *
			S:  transferring /x*
			S: 211 *
			S: 426 *
			S: 226 *`)
	}
}

// Commands behind a transfer wait for it, and their replies come in order.
func TestCommandsBehindATransfer(t *testing.T) {
	s := start(t)
	c := s.as("phoneacc")
	nc := c.data()
	c.send("STOR /f\r\nSIZE /f\r\nMKD /locks/a\r\nNOOP\r\n")
	c.play("S: 150 *")
	nc.Write([]byte("abc"))
	nc.Close()
	c.play(`
		S: 226 transfer complete, 3 bytes received
		S: 213 3
		S: 257 "/locks/a" *
		S: 200 OK`)
}

// What was sent before the data connection was closed counts, however little time lies between the two.
func TestAnAbortJustBeforeTheEndOfTheData(t *testing.T) {
	inEachMode(t, func(t *testing.T, s *server, dial func(string) *conn) {
		s.write("/f", "old")
		c := dial("phoneacc")
		for i := range 60 {
			s.tree.SetOptions(0o644, i%2 == 0)
			nc := c.data()
			d := c.secured(nc)
			c.want("STOR /f", "150 *")
			if _, err := d.Write([]byte("half of it")); err != nil {
				t.Fatal(err)
			}
			c.send("ABOR\r\n")
			d.Close()
			c.check("STOR", c.reply(), "426 /f: aborted by ABOR")
			c.check("ABOR", c.reply(), "226 *")
			s.wantContent("/f", "old")
		}
	})
}
