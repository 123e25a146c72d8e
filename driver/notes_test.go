package driver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/lock"
)

func TestNotesLieInTheLockAndGoWithIt(t *testing.T) {
	inEachMode(t, func(t *testing.T, s *server, dial func(string) *conn) {
		a, b := dial("phoneacc"), dial("other")
		a.want("MKD /locks/a", "257 *")
		a.want("TYPE I", "200 *")
		a.store("/locks/a/owner", "me\r\n")
		a.want("CWD /locks/a", "250 *")
		a.store("pid", "42")
		a.store("pid", "43")
		for _, c := range []*conn{a, b} {
			c.want("TYPE I", "200 *")
			if got := c.fetch("RETR /locks/a/owner"); got != "me\r\n" {
				t.Errorf("RETR: %q", got)
			}
			if got := c.fetch("NLST /locks/a"); got != "/locks/a/owner\r\n/locks/a/pid\r\n" {
				t.Errorf("NLST: %q", got)
			}
			c.play(`
				C: SIZE /locks/a/pid
				S: 213 2
				C: MDTM /locks/a/pid
				S: 213 #
				C: XMD5 /locks/a/pid
				S: 250 17E62166FC8586DFA4D1BC0E1742C08B
				C: MLST /locks/a/pid
				S: 250-*
				S:  type=file;size=2;*; /locks/a/pid
				S: 250 *
				C: REST 1
				S: 350 *`)
			if got := c.fetch("RETR /locks/a/pid"); got != "3" {
				t.Errorf("RETR after REST 1: %q", got)
			}
			if got := c.fetch("LIST /locks/a/p*"); !fits("-rw------- * phoneacc * 2 * /locks/a/pid\r\n", got) {
				t.Errorf("LIST: %q", got)
			}
		}
		if got := onDisk(t, filepath.Join(s.root, "locks")); s.driver.directories && fmt.Sprint(got) != "[a]" {
			t.Errorf("the tree holds %q", got)
		}
		a.play(`
			C: DELE pid
			S: 250 /locks/a/pid removed
			C: DELE pid
			S: 550 /locks/a/pid: no such file or directory
			C: CWD /locks/a/owner
			S: 550 /locks/a/owner: is not a directory
			C: RMD /locks/a
			S: 250 *`)
		b.play(`
			C: MKD /locks/a
			S: 257 *
			C: SIZE /locks/a/owner
			S: 550 *`)
		if got := b.fetch("NLST /locks/a"); got != "" {
			t.Errorf("the next holder sees %q", got)
		}
	})
}

func TestOnlyTheHolderWritesNotes(t *testing.T) {
	inEachMode(t, func(t *testing.T, s *server, dial func(string) *conn) {
		a, b, reader := dial("phoneacc"), dial("other"), dial("reader")
		a.want("MKD /locks/a", "257 *")
		reader.want("MKD /locks/r", "257 *")
		a.store("/locks/a/owner", "me")
		a.want("MKD /locks/a/member", "257 *")
		for _, tt := range []struct {
			c              *conn
			command, reply string
		}{
			{b, "STOR /locks/a/owner", "550 /locks/a/owner: only the lock's holder may do that"},
			{b, "STOR /locks/a/new", "550 /locks/a/new: only the lock's holder may do that"},
			{reader, "STOR /locks/r/note", "550 /locks/r/note: this account may not change files"},
			{a, "APPE /locks/a/owner", "550 /locks/a/owner: is a note in a lock: write it whole with STOR"},
			{a, "STOU /locks/a", "550 /locks/a: is a note in a lock: *"},
			{a, "STOR /locks/a/sub/note", "550 /locks/a/sub/note: lies in a lock: *"},
			{a, "STOR /locks/a/member", "550 /locks/a/member: is a lock: *"},
			{a, "STOR /locks/nobody/note", "550 /locks/nobody/note: *"},
		} {
			tt.c.check(tt.command, tt.c.upload(tt.command, "x"), tt.reply)
		}
		b.want("DELE /locks/a/owner", "550 /locks/a/owner: only the lock's holder may do that")
		a.want("RNFR /locks/a/owner", "550 /locks/a/owner: lies in a lock: *")
		a.want("MFMT 20200101000000 /locks/a/owner", "550 /locks/a/owner: lies in a lock: *")
		a.want("DELE /locks/a/member", "550 /locks/a/member: is a lock: *")
		if got := a.fetch("RETR /locks/a/owner"); got != "me" {
			t.Errorf("the note is %q", got)
		}
	})
}

func TestNotesHaveLimits(t *testing.T) {
	s := start(t)
	c := s.as("phoneacc")
	c.want("MKD /locks/a", "257 *")
	c.store("/locks/a/large", strings.Repeat("x", maxNoteSize))
	for _, early := range []bool{false, true} {
		nc := c.data()
		tooLarge := func() {
			nc.Write([]byte(strings.Repeat("y", maxNoteSize+1)))
			nc.Close()
		}
		if early { // all of it is there when the transfer begins
			tooLarge()
		}
		c.want("STOR /locks/a/large", "150 *")
		if !early {
			tooLarge()
		}
		c.check("STOR", c.reply(), "552 /locks/a/large: a note in a lock holds at most 65536 bytes")
	}
	if got := c.fetch("RETR /locks/a/large"); got != strings.Repeat("x", maxNoteSize) {
		t.Errorf("a note of %d bytes was replaced by %d", maxNoteSize, len(got))
	}
	for i := range maxNotes - 1 {
		c.store(fmt.Sprint("/locks/a/", i), "")
	}
	c.check("one more", c.upload("STOR /locks/a/more", "x"), "552 /locks/a/more: a lock holds at most 32 notes")
	c.store("/locks/a/large", "an old one")
	c.want("DELE /locks/a/0", "250 *")
	c.check("long name", c.upload("STOR /locks/a/"+strings.Repeat("\xff", 200), "x"), "553 *: the server cannot store such a name")
}

func TestANoteThatIsTooLargeIsNotReadToItsEnd(t *testing.T) {
	var n note
	if _, err := n.ReadFrom(neverEnding{}); !errors.Is(err, errNoteTooLarge) {
		t.Error(err)
	}
	if n.text.Len() > maxNoteSize {
		t.Errorf("%d bytes are in memory", n.text.Len())
	}
}

type neverEnding struct{}

func (neverEnding) Read(p []byte) (int, error) { return len(p), nil }

// A note that was on its way when the lock was lost is not the next holder's.
func TestANoteThatComesTooLateIsRefused(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *server) {
		a, b := s.as("phoneacc"), s.as("other")
		a.want("MKD /locks/a", "257 *")
		d := a.data()
		a.want("STOR /locks/a/note", "150 *")
		s.pass(7 * time.Minute)
		b.want("MKD /locks/a", "257 *")
		d.Write([]byte("late"))
		d.Close()
		a.check("STOR", a.reply(), "550 /locks/a/note: the token is not the lock's any more")
		if got := b.fetch("NLST /locks/a"); got != "" {
			t.Errorf("the next holder sees %q", got)
		}
	})
}

func TestSweepRemovesTheNotesOfHoldsThatEnded(t *testing.T) {
	s := start(t)
	c := s.as("phoneacc")
	c.want("MKD /locks/old", "257 *")
	c.store("/locks/old/note", "x")
	s.pass(7 * time.Minute)
	c.want("MKD /locks/new", "257 *")
	c.store("/locks/new/note", "x")
	if err := s.driver.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	status, _ := s.table.Get("/locks/new")
	if got := onDisk(t, filepath.Join(s.state, "notes")); fmt.Sprint(got) != fmt.Sprintf("[%d]", status.Holds[0].Token) {
		t.Errorf("notes of %q are left, want those of %d", got, status.Holds[0].Token)
	}
	c.want("RMD /locks/new", "250 *")
	if got := onDisk(t, filepath.Join(s.state, "notes")); len(got) > 0 {
		t.Errorf("notes of %q are left after the release", got)
	}
}

func TestNotesOutliveARestart(t *testing.T) {
	dir := t.TempDir()
	n, err := openNotes(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.put(7, "caf\xe9 %2f", []byte("x")); err != nil {
		t.Fatal(err)
	}
	n.Close()
	if err := os.WriteFile(filepath.Join(dir, "stranger"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err = openNotes(dir); err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if text, info, err := n.get(7, "caf\xe9 %2f"); string(text) != "x" || err != nil || info.Name() != "caf\xe9 %2f" {
		t.Errorf("got %q, %v", text, err)
	}
	if err := n.sweep(func() map[lock.Token]bool { return map[lock.Token]bool{7: true} }); err != nil {
		t.Error(err)
	}
	if list, _ := n.list(7); len(list) != 1 {
		t.Error("the sweep took the notes of a hold that stands")
	}
	if err := n.drop(7); err != nil {
		t.Error(err)
	}
	if got := onDisk(t, dir); fmt.Sprint(got) != "[stranger]" {
		t.Errorf("left: %q", got)
	}
}
