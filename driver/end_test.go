package driver

import (
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// If a client closes without reading its 257, the grant is undone. A grant whose 257 was read stays.
func TestAGrantThatTheClientDidNotReceiveIsUndone(t *testing.T) {
	inBothModes(t, `
		- mkdir /dir
		- link /way dir
		a MKD /way/unread_lock ...
		- granted /dir/unread_lock
		- leave a
		- freed /dir/unread_lock
		- alone
		a MKD /way/reset_lock => 257 *
		- reset a
		- alone
		- held /dir/reset_lock
		a MKD /way/later_lock => 257 *
		a NOOP => 200 *
		- reset a
		- alone
		- held /dir/later_lock
		a MKD /way/closed_lock => 257 *
		- close a
		- alone
		- held /dir/closed_lock
		a MKD /way/quit_lock\r\nQUIT ...
		a => 257 *
		a => 221 *
		- alone
		- held /dir/quit_lock
		# another client has acquired the lock meanwhile
		a MKD /locks/a ...
		- granted /locks/a
		- pass 7m
		b MKD /locks/a => 257 *
		- leave a
		- alone
		- held /locks/a
		# an ordinary directory stays
		a MKD /new => 257 *
		- reset a
		- alone
		a CWD /new => 250 *`)
}

// A session releases its locks only after its transfers have ended.
func TestALockIsReleasedOnlyAfterTheTransfersOfItsSession(t *testing.T) {
	h := &hanging{asked: make(chan struct{}, 10), answer: make(chan struct{})}
	s := start(t, func(o *setup) {
		o.wrap = func(tree *files.Tree) Tree { h.Tree = tree; return h }
	})
	c := s.as("phoneacc")
	c.want("MKD /gone/a", "257 *")
	c.port()
	c.send("RETR /hung/f\r\n")
	<-h.asked
	c.Conn.Close()
	s.until("the end of the connection waits for the transfer", func() bool {
		return somewhere("[chan receive", "]:\ngithub.com/ftplockd/ftplockd/internal/control.(*Conn).conclude(")
	})
	if !s.held("/gone/a") {
		t.Error("the lock was released while a transfer of its session ran")
	}
	close(h.answer)
	s.alone()
	if s.held("/gone/a") {
		t.Error("the lock is still held")
	}
}

func TestASessionDoesNotTimeOutBeforeItsLockEnds(t *testing.T) {
	c := start(t).as("phoneacc")
	session := c.session()
	for _, tt := range []struct {
		command string
		want    time.Duration
	}{{"NOOP", 0}, {"MKD /ever/a", idleStep}, {"RMD /ever/a", 0}, {"SITE LOCK AGE 30", 0}, {"MKD /locks/a", 31 * time.Second}, {"RMD /locks/a", 0}} {
		c.ask(tt.command)
		if got := session.IdleFor(); got != tt.want {
			t.Errorf("after %s: %v, want %v", tt.command, got, tt.want)
		}
	}
}

// Commands, and transfers that move bytes, are signs of life for max_idle.
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
		t.Fatal("a lock ended although its holder showed signs of life")
	}
	nc := c.opened("STOR /f", false)
	session := c.session()
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
	c.play("=> 226 *")
	if !s.held("/idle/a") {
		t.Fatal("a lock ended although the transfer of its holder moved bytes")
	}
	nc = c.opened("STOR /f", false)
	c.want("STAT", "211-*") // the server has counted STOR itself as a sign of life
	s.clock.Advance(61 * time.Second)
	time.Sleep(2 * watchEvery) // the watch checks the upload meanwhile
	s.pass(0)
	if s.held("/idle/a") {
		t.Error("no byte came for longer than max_idle, and the lock is held")
	}
	nc.Close()
	c.play("=> 226 *")
	c.want("RMD /idle/a", "550 /idle/a: taken away 0s ago: no sign of life for 1m0s")
}

func TestAReloadChangesTheSettingsOfOpenSessions(t *testing.T) {
	s := start(t)
	c := s.as("phoneacc")
	settings := *s.driver.settings.Load()
	settings.FTP.Active, settings.FTP.StatusFile, settings.Accounts = false, "", testAccounts{}
	s.driver.SetSettings(settings)
	c.want("PORT 127,0,0,1,200,1", "502 *")
	c.want("MDTM /.locks.json", "550 *")
	c.want("MKD /locks/a", "257 *") // a session keeps the rights of its account
	d := s.dial()
	d.want("USER phoneacc", "331 *")
	d.want("PASS "+password, "530 *")
}

// The watch may have taken a transfer from the list right before the session ended.
func TestTheWatchMayCheckATransferWhoseSessionHasEnded(t *testing.T) {
	s := start(t)
	c := s.as("phoneacc")
	d := c.begun("STOR /f", "x")
	s.moving(1)
	for key, value := range s.driver.transfers.Range {
		d.Close()
		c.check("STOR", c.reply(), "226 *")
		c.want("QUIT", "221 *")
		s.alone()
		value.(*progress).check(key.(*transfer), time.Now())
	}
}
