package driver

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// Of a grant that its client cannot have heard nothing is left; one that was heard stands.
func TestAGrantThatWasNotHeardIsTakenBack(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(c *conn)
		held bool
	}{
		{"reset", func(c *conn) { c.reset() }, false},
		{"reset after another command", func(c *conn) { c.want("NOOP", "200 *"); c.reset() }, true},
		{"closed", func(c *conn) { c.Close() }, true},
		{"QUIT", func(c *conn) { c.want("QUIT", "221 *"); c.Close() }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachMode(t, func(t *testing.T, s *server) {
				s.mkdir("/dir")
				s.link("dir", "/way")
				c := s.as("phoneacc")
				c.want("MKD /way/a_lock", "257 *")
				tt.end(c)
				s.alone()
				if got := s.held("/dir/a_lock"); got != tt.held {
					t.Errorf("held: %t", got)
				}
			})
		})
	}
	t.Run("QUIT behind MKD", func(t *testing.T) {
		s := start(t)
		c := s.as("phoneacc")
		c.send("MKD /locks/a\r\nQUIT\r\n")
		c.play(`
			S: 257 *
			S: 221 *`)
		c.ended()
		s.alone()
		if !s.held("/locks/a") {
			t.Error("the lock is gone")
		}
	})
	t.Run("a lock that somebody else has by now", func(t *testing.T) {
		s := start(t)
		c := s.as("phoneacc")
		c.want("MKD /locks/a", "257 *")
		s.pass(7 * time.Minute)
		other := s.table.Open(lock.Owner{Account: "other"})
		if _, _, err := other.AcquireOrWait(t.Context(), "/locks/a", nil); err != nil {
			t.Fatal(err)
		}
		c.reset()
		s.alone()
		if !s.held("/locks/a") {
			t.Error("the other's lock was taken away")
		}
	})
	t.Run("a directory", func(t *testing.T) {
		s := start(t)
		c := s.as("phoneacc")
		c.want("MKD /dir", "257 *")
		c.reset()
		s.alone()
		if got := onDisk(t, s.root); !strings.Contains(strings.Join(got, " "), "dir") {
			t.Error("the directory is gone")
		}
	})
}

func TestLocksThatEndWithTheirConnection(t *testing.T) {
	for _, end := range []func(c *conn){
		func(c *conn) { c.Close() },
		func(c *conn) { c.want("NOOP", "200 *"); c.reset() },
		func(c *conn) { c.want("QUIT", "221 *") },
	} {
		s := start(t)
		c := s.as("phoneacc")
		c.want("MKD /gone/a", "257 *")
		c.want("MKD /locks/a", "257 *")
		end(c)
		s.alone()
		if s.held("/gone/a") || !s.held("/locks/a") {
			t.Errorf("held: %t, want false; %t, want true", s.held("/gone/a"), s.held("/locks/a"))
		}
	}
}

// The next holder of a lock never meets the bytes of the last one.
func TestALockOutlivesTheTransfersOfItsSession(t *testing.T) {
	s := start(t)
	c := s.as("phoneacc")
	c.want("MKD /gone/a", "257 *")
	goOn := s.publishing(c, "/gone/a/note")
	c.Close()
	ending := onlySession(s)
	s.until("the end of the connection is known", ending.conn.Gone)
	if !s.held("/gone/a") {
		t.Error("the lock was given back while its transfer ran")
	}
	goOn()
	s.alone()
	if s.held("/gone/a") {
		t.Error("the lock is held still")
	}
}

// QUIT does not cut an upload off; what it is worth depends on whether its client has shown that nothing is missing.
func TestQuitBeforeTheEndOfAnUpload(t *testing.T) {
	for _, tt := range []struct {
		name, announced, reply, content string
	}{
		{"nothing was announced", "", "426 /f: QUIT came before the upload was complete*", "old"},
		{"all that was announced came", "ALLO 9", "226 *", "all of it"},
		{"less was announced", "ALLO 8", "426 /f: QUIT came before *", "old"},
		{"more was announced", "ALLO 10", "426 /f: fewer bytes than ALLO announced: 9 of 10", "old"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t)
			s.write("/f", "old")
			c := s.as("phoneacc")
			c.want("MKD /gone/a", "257 *")
			c.want("TYPE I", "200 *")
			if tt.announced != "" {
				c.want(tt.announced, "200 *")
			}
			nc := c.data()
			c.want("STOR /f", "150 *")
			c.send("QUIT\r\n")
			nc.Write([]byte("all of it"))
			if !s.held("/gone/a") {
				t.Error("the lock was given back before the end")
			}
			nc.Close()
			c.play("S: " + tt.reply + "\nS: 221 *")
			c.ended()
			s.alone()
			s.wantContent("/f", tt.content)
			if s.held("/gone/a") {
				t.Error("the lock is held still")
			}
		})
	}
	t.Run("a close_notify under TLS", func(t *testing.T) {
		s := start(t, tlsRequired)
		c := s.dial()
		c.upgrade()
		c.login("phoneacc")
		d := c.secured(c.data())
		c.want("STOR /f", "150 *")
		c.send("QUIT\r\n")
		io.WriteString(d, "all of it")
		d.Close()
		c.play(`
			S: 226 *
			S: 221 *`)
		c.ended()
		s.alone()
		s.wantContent("/f", "all of it")
	})
}

// A download is sent to its end.
// A QUIT that comes behind the end of the data, while 64 MiB go to the disk, discards the upload, too.
func TestQuitBehindALargeUpload(t *testing.T) {
	s := start(t, func(o *setup) { o.settings.HangUp = 20 * time.Millisecond })
	s.write("/f", "old")
	content := make([]byte, 64<<20)
	for range 3 {
		c := s.as("phoneacc")
		nc := c.data()
		c.want("STOR /f", "150 *")
		nc.Write(content)
		nc.Close()
		c.send("QUIT\r\n")
		c.play(`
			S: 426 /f: QUIT came before the upload was complete*
			S: 221 *`)
		c.ended()
		s.alone()
		s.wantContent("/f", "old")
	}
}

func TestQuitLetsADownloadFinish(t *testing.T) {
	s := start(t)
	s.write("/f", strings.Repeat("x", 1<<20))
	c := s.as("phoneacc")
	nc := c.data()
	c.want("RETR /f", "150 *")
	c.send("QUIT\r\n")
	if got, err := io.ReadAll(nc); len(got) != 1<<20 || err != nil {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	nc.Close()
	c.play(`
		S: 226 *
		S: 221 *`)
	c.ended()
}

func TestAHolderIsNotIdle(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *setup) { o.control.Limits.IdleTimeout = time.Second })
	holder := s.as("phoneacc")
	holder.want("MKD /locks/a", "257 *")
	idle := s.as("other")
	idle.play("S: 421 idle timeout")
	idle.ended()
	holder.want("RMD /locks/a", "250 *")
}

func TestHowLongASessionMayBeIdle(t *testing.T) {
	s := start(t)
	c := s.as("phoneacc")
	session := c.session()
	for _, tt := range []struct {
		command string
		want    time.Duration
	}{
		{"NOOP", 0},
		{"MKD /locks/a", askAgain},
		{"MKD /ever/a", askAgain},
		{"RMD /locks/a", askAgain},
		{"RMD /ever/a", 0},
		{"SITE LOCK AGE 30", 0},
		{"MKD /locks/a", 31 * time.Second},
		{"RMD /locks/a", 0},
	} {
		c.ask(tt.command)
		if got := session.IdleFor(); got > tt.want || got < tt.want-patience {
			t.Errorf("after %s: %v, want %v", tt.command, got, tt.want)
		}
	}
}

func onlySession(s *server) (only *client) {
	for conn := range s.control.Conns() {
		only = conn.Handler().(*client)
	}
	return only
}

func TestShutdownLetsAnUploadFinish(t *testing.T) {
	s := start(t)
	idle, c := s.as("other"), s.as("phoneacc")
	idle.want("MKD /gone/idle", "257 *")
	c.want("MKD /gone/a", "257 *")
	nc := c.data()
	c.want("STOR /f", "150 *")
	nc.Write([]byte("half, "))
	if err := s.control.Shutdown(control.Reply{Code: 421, Text: "the server stops"}); err != nil {
		t.Fatal(err)
	}
	idle.play("S: 421 the server stops")
	idle.ended()
	if !s.held("/gone/a") {
		t.Error("the lock was given back before the end")
	}
	nc.Write([]byte("whole"))
	nc.Close()
	c.play(`
		S: 226 *
		S: 421 the server stops`)
	s.alone()
	s.wantContent("/f", "half, whole")
	if s.held("/gone/a") || s.held("/gone/idle") {
		t.Error("locks are held still")
	}
}

func TestAKickEndsATransfer(t *testing.T) {
	s := start(t)
	s.write("/f", "old")
	c := s.as("phoneacc")
	nc := c.data()
	c.want("STOR /f", "150 *")
	nc.Write([]byte("new"))
	for conn := range s.control.Conns() {
		conn.Kick(control.Reply{Code: 421, Text: "the server stops"})
	}
	c.play(`
		S: 426 /f: the server ended the session
		S: 421 the server stops`)
	s.alone()
	s.wantContent("/f", "old")
}

func TestKickByTheIDOfASession(t *testing.T) {
	s := start(t)
	s.write("/f", "old")
	c, other := s.as("phoneacc"), s.as("other")
	c.want("MKD /gone/a", "257 *")
	other.want("MKD /gone/b", "257 *")
	nc := c.data()
	c.want("STOR /f", "150 *")
	nc.Write([]byte("new"))
	id := c.session().locks.ID()
	if !s.driver.Kick(id, "an administrator ended it") {
		t.Error("there is no such session")
	}
	c.play(`
		S: 426 /f: the server ended the session
		S: 421 an administrator ended it`)
	c.tcp.Close()
	s.until("its session has ended", func() bool { return !s.held("/gone/a") })
	if s.driver.Kick(id, "again") {
		t.Error("it is kicked again")
	}
	other.want("RMD /gone/b", "250 *")
	s.wantContent("/f", "old")
}

// A waiting MKD is withdrawn by a kick.
func TestAKickEndsTheWaiting(t *testing.T) {
	s := start(t, func(o *setup) {
		o.rules = []lock.Rule{{Match: "/locks/*", Contention: &lock.Contention{Wait: time.Hour}}}
	})
	holder, waiter := s.as("phoneacc"), s.as("other")
	holder.want("MKD /locks/a", "257 *")
	waiter.send("MKD /locks/a\r\n")
	s.until("it waits", func() bool { status, _ := s.table.Get("/locks/a"); return status.Waiting == 1 })
	s.driver.Kick(waiter.session().locks.ID(), "go away")
	r := waiter.reply()
	if fits("550 /locks/a: not waited for any longer", r) {
		r = waiter.reply()
	}
	waiter.check("MKD", r, "421 go away")
	waiter.ended()
	if status, _ := s.table.Get("/locks/a"); status.Waiting != 0 {
		t.Error("it waits still")
	}
	holder.want("RMD /locks/a", "250 *")
}

// A command under way and a transfer that moves are signs of life, for max_idle.
func TestSignsOfLife(t *testing.T) {
	s := start(t, func(o *setup) {
		o.rules = []lock.Rule{{Match: "/idle/**", MaxIdle: time.Minute}}
	})
	c := s.as("phoneacc")
	c.want("MKD /idle/a", "257 *")
	for range 3 {
		s.pass(50 * time.Second)
		c.want("NOOP", "200 *")
	}
	if !s.held("/idle/a") {
		t.Fatal("a lock ended although its holder was alive")
	}
	nc := c.data()
	c.want("STOR /f", "150 *")
	session := onlySession(s)
	for range 3 {
		s.clock.Advance(50 * time.Second)
		nc.Write([]byte("x"))
		s.until("the bytes are a sign of life", func() bool {
			until, _, _ := session.locks.HoldsUntil()
			return until-s.clock.Now().Boot > 50*time.Second
		})
		s.pass(0)
	}
	nc.Close()
	c.play("S: 226 *")
	if !s.held("/idle/a") {
		t.Fatal("a lock ended although its holder's transfer moved")
	}
	s.pass(61 * time.Second)
	if s.held("/idle/a") {
		t.Error("nothing came for longer than max_idle, and the lock is held")
	}
	c.want("RMD /idle/a", "550 /idle/a: taken away 0s ago: no sign of life for 1m0s")
}

func TestSettingsOfAReload(t *testing.T) {
	s := start(t)
	c := s.as("phoneacc")
	settings := *s.driver.settings.Load()
	settings.Active, settings.StatusFile, settings.Accounts = false, "", testAccounts{}
	s.driver.SetSettings(settings)
	c.want("PORT 127,0,0,1,200,1", "502 *")
	c.want("MDTM /.locks.json", "550 *")
	c.want("MKD /locks/a", "257 *") // who is logged in keeps what it had
	d := s.dial()
	d.want("USER phoneacc", "331 *")
	d.want("PASS "+password, "530 *")
}
