package driver

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	ftpserver "github.com/fclairamb/ftpserverlib"
)

// sparse makes a file that is larger than the buffers of a loopback connection.
func (s *server) sparse(name string) {
	s.t.Helper()
	s.write(name, "")
	if err := os.Truncate(filepath.Join(s.root, name), 64<<20); err != nil {
		s.t.Fatal(err)
	}
}

// RFC 959 section 4.1.3: 426 for the transfer and 226 for ABOR, or 226 alone if there is none.
func TestAbor(t *testing.T) {
	inBothWires(t, func(t *testing.T, s *server) {
		s.write("/f", "old")
		s.sparse("/large")
		c := s.as("phoneacc")
		c.want("TYPE I", "200 *")
		c.want("ABOR", "226 *")
		began := time.Now()
		for i, command := range []string{"STOR /f", "RETR /large", "LIST"} { // without a data connection
			c.port()
			c.send(command + "\r\n")
			if i > 0 {
				s.until("it waits for the connection", func() bool { return somewhere("(*Port).Accept") })
			}
			c.play(`
				ABOR => 426 *: aborted by ABOR
				=> 226 *
				NOOP => 200 OK`)
		}
		if d := time.Since(began); d > s.driver.connectWithin()/2 {
			t.Errorf("ABOR waited for the data connection: %v", d)
		}

		// An ABOR that precedes the end of the data connection counts, however short the time between them is.
		for i := range 20 {
			s.tree.SetOptions(0o644, i%2 == 0)
			d := c.begun("STOR /f", "half of it")
			c.send("ABOR\r\n")
			if i > 0 {
				d.Close()
			}
			c.check("STOR", c.reply(), "426 /f: aborted by ABOR")
			c.check("ABOR", c.reply(), "226 *")
			s.wantContent("/f", "old")
		}

		for _, active := range []bool{false, true} {
			nc := c.opened("RETR /large", active)
			began := time.Now()
			io.ReadFull(c.Secure(nc), make([]byte, 10))
			c.play(`
				ABOR => 426 /large: aborted by ABOR
				=> 226 *`)
			if d := time.Since(began); d > 4*time.Second { // crypto/tls would wait 5 s to send its close_notify
				t.Errorf("ABOR took %v, active: %t", d, active)
			}
			nc.Close()
		}
		c.store("/f", "new")
		s.wantContent("/f", "new")
	})
}

// publishing uploads a file of one byte, and stops the server while it publishes the file, until the test calls goOn.
func (s *server) publishing(c *conn, file string) (goOn func()) {
	s.t.Helper()
	d := c.opened("STOR "+file, false)
	s.driver.layout.Lock()
	d.Write([]byte("x"))
	d.Close()
	s.until("the file is being published", func() bool { return somewhere("placeProtected", "(*RWMutex).RLock") })
	return s.driver.layout.Unlock
}

// While a file is being published, ABOR is too late.
func TestAborIsTooLateDuringPublication(t *testing.T) {
	s := start(t)
	c := s.as("phoneacc")
	c.want("MKD /locks/a", "257 *")
	goOn := s.publishing(c, "/locks/a/note")
	c.send("ABOR\r\nNOOP\r\n")
	goOn()
	c.play(`
		=> 226 transfer complete, 1 bytes received
		=> 226 *
		=> 200 OK`)
}

// busy is the library's client. Path waits until goOn is closed, and so does STAT.
type busy struct {
	ftpserver.ClientContext
	asked, goOn chan struct{}
}

func (b busy) Path() string {
	b.asked <- struct{}{}
	<-b.goOn
	return b.ClientContext.Path()
}

// busy makes the reader of commands busy, once it reads STAT.
func (c *conn) busy() busy {
	c.T.Helper()
	client := c.fs()
	reader := busy{client.libraryClient, make(chan struct{}, 10), make(chan struct{})}
	client.libraryClient = reader
	return reader
}

// When the upload is complete, an ABOR has arrived, and the reader of commands has not read it.
func TestAnUploadWaitsForAnAborThatHasArrived(t *testing.T) {
	s := start(t)
	s.driver.catchUp = patience
	s.write("/f", "old")
	c := s.as("phoneacc")
	reader := c.busy()
	data := c.begun("STOR /f", "new")
	s.moving(1)
	c.send("STAT\r\nABOR\r\n")
	<-reader.asked
	data.Close()
	s.until("the upload waits for the reader", func() bool { return somewhere("(*transfer).closeUpload", "(*Conn).CatchUp") })
	close(reader.goOn)
	c.play(transferring + "\n=> 426 *\n=> 226 *")
	s.wantContent("/f", "old")
}

// Commands after a transfer wait for its end, and their replies come in order. STAT without a path does not wait, except for the 1xx.
func TestCommandsAfterATransfer(t *testing.T) {
	s := start(t)
	c := s.as("phoneacc")
	nc := c.data()
	c.send("STOR /f\r\nSTAT\r\nSTAT /f\r\nSIZE /f\r\nMKD /locks/a\r\nNOOP\r\n")
	c.play("=> 150 *\n" + transferring)
	nc.Write([]byte("abc"))
	nc.Close()
	c.play(`
		=> 226 transfer complete, 3 bytes received
		=> 213-Status of /f:\n -rw* 3 * /f\n213 End of status
		=> 213 3
		=> 257 "/locks/a" *
		=> 200 OK`)
	for range 20 {
		d := c.begun("STOR /f", "x")
		s.moving(1)
		c.send("STAT\r\nABOR\r\n")
		c.play(transferring + "\n=> 426 *\n=> 226 *")
		d.Close()
	}
	c.port()
	c.send("STOR /none/f\r\nSTAT\r\nNOOP\r\n")
	c.check("a refused transfer", c.reply(), "550 *")
	c.check("STAT", c.reply(), "211-*")
	c.check("NOOP", c.reply(), "200 *")
}

// transferring is the reply to STAT during an upload of /f.
const transferring = `=> 211-*\n connected from 127.0.0.1\n type ASCII\n logged in as phoneacc\n in /\n transferring /f*\n211 *`

// An upload that waits for the end of its killed client can still be aborted, by ABOR or by an administrator.
func TestAnUploadThatWaitsIsAborted(t *testing.T) {
	s := start(t, func(o *setup) { o.settings.Files.HangUp.Duration = time.Second })
	s.write("/f", "old")
	c := s.as("phoneacc")
	c.begun("STOR /f", "new").Close()
	s.until("it waits", func() bool { return somewhere("(*transfer).awaitHangUp", "time.Sleep(") })
	c.aborts()
	c.begun("STOR /f", "new").Close()
	s.until("it waits", func() bool { return somewhere("(*transfer).awaitHangUp", "time.Sleep(") })
	id := c.session().locks.ID()
	s.dial() // a session without a login
	if !s.driver.Kick(id, "an administrator ended it") || s.driver.Kick(id+1000, "nobody") || s.driver.Kick(0, "nobody") {
		t.Error("Kick does not report whether there is such a session")
	}
	c.play(`
		=> 426 /f: the server ended the session
		=> 421 an administrator ended it`)
	s.wantContent("/f", "old")
}

// aborts sends ABOR during an upload of /f.
func (c *conn) aborts() {
	c.T.Helper()
	c.play(`
		ABOR => 426 /f: aborted by ABOR
		=> 226 *`)
}

// The QUIT comes with the STOR, so the client may close the control connection in order, and the upload continues. A killed client resets it,
// at once if it has not read the 150, otherwise when the 226 comes.
func TestAClientIsKilledAfterQuit(t *testing.T) {
	for reads150, want := range map[bool]string{false: "old", true: "half"} {
		var events notebook
		s := start(t, events.ofFiles, func(o *setup) { o.settings.Files.HangUp.Duration = 300 * time.Millisecond })
		s.write("/f", "old")
		c := s.as("phoneacc")
		c.want("TYPE I", "200 *")
		d := c.data()
		c.send("STOR /f\r\nQUIT\r\n")
		marked := 0
		if reads150 {
			c.play("=> 150 *")
			marked = 1
		} else {
			s.moving(1) // the 150 was sent
		}
		io.WriteString(d, "half")
		d.Close()
		c.TCP.Close()
		s.alone()
		s.wantContent("/f", want)
		if got := those(events.await(t, "unconfirmed", marked), "unconfirmed /f"); len(got) != marked {
			t.Errorf("marked as unconfirmed: %q", got)
		}
	}
}

// QUIT does not cut off an upload. The upload is published only if ALLO or a close_notify proves that it is complete.
func TestQuitBeforeTheEndOfAnUpload(t *testing.T) {
	script := func(before, reply, content string, changes ...func(*setup)) {
		t.Helper()
		plays(t, `
			- write /f old
			a MKD /gone/a => 257 *
			a TYPE I => 200 *
			a `+before+` => 200 *
			a STOR /f <<< all of it ...
			a QUIT ...
			- held /gone/a
			a => `+reply+`
			a => 221 *
			- alone
			- file /f `+content+`
			- free /gone/a`, changes...)
	}
	script("NOOP", "426 /f: QUIT came before the upload was complete*", "old")
	script("ALLO 9", "226 *", "all of it")
	script("ALLO 8", "426 /f: QUIT came before *", "old")
	script("ALLO 10", "426 /f: fewer bytes than ALLO announced: 9 of 10", "old")
	script("NOOP", "226 *", "all of it", tlsRequired) // its end is a close_notify
}

func TestQuitBeforeTheEndOfADownload(t *testing.T) {
	s := start(t)
	s.sparse("/large")
	c := s.as("phoneacc")
	c.want("TYPE I", "200 *")
	nc := c.opened("RETR /large", false)
	c.send("QUIT\r\n")
	if n, err := io.Copy(io.Discard, nc); n != 64<<20 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	nc.Close()
	c.play("=> 226 *\n=> 221 *")
	c.ended()
}

// The reader of the control connection is busy, here with STAT, when the connection ends. The upload checks the connection itself.
func TestAnUploadIsNotPublishedIfItsClientHangsUpUnseen(t *testing.T) {
	var events notebook
	s := start(t, events.ofFiles)
	s.write("/f", "old")
	c := s.as("phoneacc")
	c.want("TYPE I", "200 *")
	c.want("ALLO 3", "200 *")
	reader := c.busy()
	d := c.begun("STOR /f", "new")
	c.send("STAT\r\n")
	<-reader.asked
	c.TCP.Close()
	d.Close()
	s.until("the upload is over", func() bool { return len(events.all()) > 0 })
	close(reader.goOn)
	s.alone()
	s.wantContent("/f", "old")
}

// The data connection of the upload ends in order, and the control connection 40 ms later: a killed client, if that is within HangUp. An upload
// with the length of ALLO does not wait; APPE waits if only the file has that length.
func TestAnUploadWaitsForTheEndOfAKilledClient(t *testing.T) {
	for _, tt := range []struct {
		within       time.Duration
		before, verb string
		want         string
	}{
		{0, "NOOP", "STOR", "whole"}, {time.Second, "NOOP", "STOR", "old"}, {patience, "ALLO 5", "STOR", "whole"}, {time.Second, "ALLO 4", "STOR", "old"},
		{time.Second, "ALLO 8", "APPE", "old"}, {patience, "ALLO 5", "APPE", "oldwhole"},
	} {
		t.Run(fmt.Sprintf("%v, %s, %s", tt.within, tt.before, tt.verb), func(t *testing.T) {
			t.Parallel()
			s := start(t, func(o *setup) { o.settings.Files.HangUp.Duration = tt.within })
			s.write("/f", "old")
			c := s.as("phoneacc")
			c.want("TYPE I", "200 *")
			c.want(tt.before, "200 *")
			c.begun(tt.verb+" /f", "whole").Close()
			if tt.want != "old" {
				s.until("it is published", func() bool { return s.content("/f") == tt.want })
			} else {
				time.Sleep(40 * time.Millisecond)
			}
			c.TCP.Close()
			s.alone()
			s.wantContent("/f", tt.want)
		})
	}
}

func TestHangUpWait(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		hangUp, took time.Duration
		received     int64
		want         time.Duration
	}{
		{2 * ms, ms, 1 << 10, 2 * ms}, {2 * ms, 400 * ms, 1, 20 * ms}, {2 * ms, time.Hour, 1, 50 * ms}, {time.Second, time.Hour, 1, time.Second},
		{2 * ms, 0, 0, 50 * ms}, {time.Second, 0, 0, time.Second}, {0, time.Hour, 1, 0}, {0, time.Hour, 0, 0},
	} {
		if got := hangUpWait(tt.hangUp, tt.took, tt.received); got != tt.want {
			t.Errorf("hang_up %v, %v for %d bytes: %v, want %v", tt.hangUp, tt.took, tt.received, got, tt.want)
		}
	}
}

// An upload that nothing proves to be complete is published later after the end of its data connection if it took long, or if it is empty.
func TestLongAndEmptyUploadsWaitLongerForTheEndOfTheClient(t *testing.T) {
	s := start(t)
	c := s.as("phoneacc")
	for _, tt := range []struct {
		content string
		takes   time.Duration
		least   time.Duration
	}{{"", 0, 50 * time.Millisecond}, {"x", 600 * time.Millisecond, 20 * time.Millisecond}} {
		data := c.begun("STOR /f", tt.content)
		time.Sleep(tt.takes) // the duration of the transfer is what the test is about
		ended := time.Now()
		data.Close()
		c.check("STOR", c.reply(), "226 *")
		if took := time.Since(ended); took < tt.least {
			t.Errorf("%q in %v: 226 after %v, want at least %v", tt.content, tt.takes, took, tt.least)
		}
		s.wantContent("/f", tt.content)
	}
}
