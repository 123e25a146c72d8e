package driver

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ftpserver "github.com/fclairamb/ftpserverlib"

	"github.com/ftplockd/ftplockd/internal/event"
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
	inBothWires(t, func(t *testing.T, s *server) {
		s.write("/f", "old")
		s.sparse("/large")
		c := s.as("phoneacc")
		c.want("TYPE I", "200 *")
		c.want("ABOR", "226 *")
		began := time.Now()
		for _, command := range []string{"STOR /f", "RETR /large", "LIST"} { // nobody comes for the data
			c.port()
			c.send(command + "\r\nABOR\r\n")
			c.transcript(`
				S: 426 *: aborted by ABOR
				S: 226 *
				C: NOOP
				S: 200 OK`)
		}
		if d := time.Since(began); d > s.driver.connectWithin()/2 {
			t.Errorf("ABOR waited for the data connection: %v", d)
		}

		// What was sent before the data connection was closed counts, however little time lies between the two.
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
			io.ReadFull(c.secured(nc), make([]byte, 10))
			c.transcript(`
				C: ABOR
				S: 426 /large: aborted by ABOR
				S: 226 *`)
			if d := time.Since(began); d > 4*time.Second { // as crypto/tls would take to say goodbye
				t.Errorf("ABOR took %v, active: %t", d, active)
			}
			nc.Close()
		}
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
	c.transcript(`
		S: 226 transfer complete, 1 bytes received
		S: 226 *
		S: 200 OK`)
}

// stopper is a log that stops where a text is logged first, until it may go on.
type stopper struct {
	text        string
	once        *sync.Once
	stopped, on chan struct{}
}

func (stopper) Enabled(context.Context, slog.Level) bool { return true }
func (h stopper) WithAttrs([]slog.Attr) slog.Handler     { return h }
func (h stopper) WithGroup(string) slog.Handler          { return h }
func (h stopper) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if strings.HasPrefix(a.Value.String(), h.text) {
			h.once.Do(func() {
				close(h.stopped)
				<-h.on
			})
		}
		return true
	})
	return nil
}

// transferring reads the reply to STAT during a transfer.
func (c *conn) transferring(path string) {
	c.t.Helper()
	c.transcript(`
		S: 211-*
		S:  connected from 127.0.0.1
		S:  type ASCII
		S:  logged in as phoneacc
		S:  in /
		S:  transferring ` + path + `*
		S: 211 *`)
}

// The ABOR has arrived, and the reader of commands is still busy with what was before it, when the upload is complete.
func TestAnAborThatHasArrivedIsLookedAtBeforeAnUploadIsPublished(t *testing.T) {
	log := stopper{"211-", new(sync.Once), make(chan struct{}), make(chan struct{})}
	s := start(t, func(o *setup) { o.log = slog.New(log) })
	s.driver.catchUp = patience
	s.write("/f", "old")
	c := s.as("phoneacc")
	data := c.begun("STOR /f", "new")
	c.send("STAT\r\nABOR\r\n")
	<-log.stopped
	data.Close()
	s.until("the upload waits for the reader", func() bool { return somewhere("(*transfer).publish", "(*Conn).CatchUp") })
	close(log.on)
	c.transferring("/f")
	c.transcript(`
		S: 426 *
		S: 226 *`)
	s.wantContent("/f", "old")
}

// Commands behind a transfer wait for it, and their replies come in order; STAT does not wait, unless it has a path.
func TestCommandsBehindATransfer(t *testing.T) {
	s := start(t)
	c := s.as("phoneacc")
	nc := c.data()
	c.send("STOR /f\r\nSTAT /f\r\nSIZE /f\r\nMKD /locks/a\r\nNOOP\r\n")
	c.transcript("S: 150 *")
	nc.Write([]byte("abc"))
	nc.Close()
	c.transcript(`
		S: 226 transfer complete, 3 bytes received
		S: 213-Status of /f:
		S:  -rw* 3 * /f
		S: 213 End of status
		S: 213 3
		S: 257 "/locks/a" *
		S: 200 OK`)
	for range 20 { // before the data connection stands, while the library opens what is transferred
		c.port()
		c.send("STOU /x\r\nSTAT\r\nABOR\r\n")
		c.transferring("/x")
		c.transcript(`
			S: 426 *
			S: 226 *`)
	}
}

// Whatever ends the session of an upload that is not complete, the old file stays, and its client is told as far as it can be. The kernel of a
// killed client ends both connections, in any order.
func TestAnUploadThatIsCutOffLeavesTheOldFile(t *testing.T) {
	for name, end := range map[string]func(c *conn, data *net.TCPConn){
		"data first":                func(c *conn, data *net.TCPConn) { data.Close(); c.tcp.Close() },
		"control first":             func(c *conn, data *net.TCPConn) { c.tcp.Close(); data.Close() },
		"control reset":             func(c *conn, data *net.TCPConn) { c.reset(); data.Close() },
		"data first, control reset": func(c *conn, data *net.TCPConn) { data.Close(); c.reset() },
		"data reset":                func(c *conn, data *net.TCPConn) { data.SetLinger(0); data.Close(); c.tcp.Close() },
		"control only":              func(c *conn, _ *net.TCPConn) { c.tcp.Close() },
		"control later":             func(c *conn, data *net.TCPConn) { data.Close(); time.Sleep(40 * time.Millisecond); c.tcp.Close() },
		"control is half closed":    func(c *conn, _ *net.TCPConn) { c.tcp.CloseWrite(); c.check("", c.reply(), "426 *hung up*") },
		"an administrator's kick":   func(c *conn, _ *net.TCPConn) { c.kicked() },
		"ABOR while it is looked for": func(c *conn, data *net.TCPConn) {
			data.Close()
			time.Sleep(100 * time.Millisecond)
			c.aborts()
			c.tcp.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, typ := range []string{"I", "A"} {
				// So long that the second connection's end is seen however busy the machine is.
				s := start(t, func(o *setup) { o.settings.HangUp = patience })
				s.write("/f", "old")
				c := s.as("phoneacc")
				c.want("MKD /gone/a", "257 *")
				c.want("TYPE "+typ, "200 *")
				d := c.opened("STOR /f", false)
				d.Write([]byte("half a\r\nfi"))
				end(c, d)
				s.alone()
				s.wantContent("/f", "old")
				if s.held("/gone/a") {
					t.Error("the lock is held still")
				}
			}
		})
	}
}

// aborts says ABOR in the middle of an upload of /f.
func (c *conn) aborts() {
	c.t.Helper()
	c.transcript(`
		C: ABOR
		S: 426 /f: aborted by ABOR
		S: 226 *`)
}

// kicked ends the session by its id, once, in the middle of an upload of /f.
func (c *conn) kicked() {
	c.t.Helper()
	id := c.session().locks.ID()
	if !c.server.driver.Kick(id, "an administrator ended it") || c.server.driver.Kick(id+1000, "nobody") || c.server.driver.Kick(0, "nobody") {
		c.t.Error("Kick does not tell whether there is such a session")
	}
	c.transcript(`
		S: 426 /f: the server ended the session
		S: 421 an administrator ended it`)
	c.tcp.Close()
}

// QUIT does not cut an upload off; what it is worth depends on whether its client has shown that nothing is missing.
func TestQuitBeforeTheEndOfAnUpload(t *testing.T) {
	for _, tt := range []struct {
		name, before, reply, content string
	}{
		{"nothing was announced", "TYPE I", "426 /f: QUIT came before the upload was complete*", "old"},
		{"all that was announced came", "ALLO 9", "226 *", "all of it"},
		{"less was announced", "ALLO 8", "426 /f: QUIT came before *", "old"},
		{"more was announced", "ALLO 10", "426 /f: fewer bytes than ALLO announced: 9 of 10", "old"},
		{"a close_notify under TLS", "", "226 *", "all of it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t, secure)
			s.write("/f", "old")
			c := s.dial()
			if tt.before == "" {
				c.upgrade()
			}
			c.login("phoneacc")
			c.want("MKD /gone/a", "257 *")
			c.want("TYPE I", "200 *")
			c.want(cmp.Or(tt.before, "NOOP"), "200 *")
			d := c.begun("STOR /f", "all of")
			c.send("QUIT\r\n")
			io.WriteString(d, " it")
			if !s.held("/gone/a") {
				t.Error("the lock was given back before the end")
			}
			d.Close()
			c.transcript("S: " + tt.reply + "\nS: 221 *")
			c.ended()
			s.alone()
			s.wantContent("/f", tt.content)
			if s.held("/gone/a") {
				t.Error("the lock is held still")
			}
		})
	}
	t.Run("a download is sent to its end", func(t *testing.T) {
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
		c.transcript(`
			S: 226 *
			S: 221 *`)
		c.ended()
	})
}

// busy is the library's client, whose directory nobody learns until goOn is closed.
type busy struct {
	ftpserver.ClientContext
	asked, goOn chan struct{}
}

func (b busy) Path() string {
	b.asked <- struct{}{}
	<-b.goOn
	return b.ClientContext.Path()
}

// Who reads the control connection is busy when its end comes, here with STAT: it is seen by the look that an upload takes at its client.
func TestAnUploadIsNotPublishedIfItsClientHangsUpUnseen(t *testing.T) {
	var discarded atomic.Bool
	s := start(t, func(o *setup) {
		o.events = func(batch []event.Event) {
			for _, e := range batch {
				if e.Kind == event.Discard {
					discarded.Store(true)
				}
			}
		}
	})
	s.write("/f", "old")
	c := s.as("phoneacc")
	c.want("TYPE I", "200 *")
	c.want("ALLO 3", "200 *")
	client := c.fs()
	reader := busy{client.context, make(chan struct{}, 10), make(chan struct{})}
	client.context = reader
	d := c.begun("STOR /f", "new")
	c.send("STAT\r\n")
	<-reader.asked
	c.tcp.Close()
	d.Close()
	s.until("the upload is over", func() bool { return s.content("/f") == "new" || discarded.Load() })
	close(reader.goOn)
	s.alone()
	s.wantContent("/f", "old")
}

// What an upload is taken for whose data connection ended in order, and its control connection 40 ms later. With what it announced, or a
// close_notify, it is complete and does not wait.
func TestAsLongAsIsConfiguredAClientMayTakeToHangUp(t *testing.T) {
	for _, tt := range []struct {
		within time.Duration
		allo   int // 0: none
		want   string
	}{{0, 0, "whole"}, {patience, 0, "old"}, {patience, 5, "whole"}, {patience, 4, "old"}} {
		t.Run(fmt.Sprintf("%v, ALLO %d", tt.within, tt.allo), func(t *testing.T) {
			s := start(t, func(o *setup) { o.settings.HangUp = tt.within })
			s.write("/f", "old")
			c := s.as("phoneacc")
			c.want("TYPE I", "200 *")
			if tt.allo > 0 {
				c.want(fmt.Sprint("ALLO ", tt.allo), "200 *")
			}
			c.begun("STOR /f", "whole").Close()
			if tt.want == "whole" {
				s.until("it is published", func() bool { return s.content("/f") == "whole" })
			} else {
				time.Sleep(40 * time.Millisecond)
			}
			c.tcp.Close()
			s.alone()
			s.wantContent("/f", tt.want)
		})
	}
}
