package driver

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestMkdTakesALockAndRmdGivesItBack(t *testing.T) {
	inEachMode(t, func(t *testing.T, s *server, dial func(string) *conn) {
		a, b := dial("phoneacc"), dial("other")
		// RFC 959 page 63: the path in quotes comes first.
		a.play(`
			C: MKD /locks/phone
			S: 257 "/locks/phone" locked, token #, expires in 6m0s`)
		b.play(`
			C: MKD /locks/phone
			S: 550 /locks/phone: held by phoneacc@127.0.0.1 for 0s, expires in 6m0s
			C: XMKD /locks/phone
			S: 550 /locks/phone: held by phoneacc@127.0.0.1 for 0s, expires in 6m0s
			C: RMD /locks/phone
			S: 550 /locks/phone: not yours: held by phoneacc@127.0.0.1 for 0s`)
		s.pass(12 * time.Second)
		b.want("MKD /locks/phone", "550 /locks/phone: held by phoneacc@127.0.0.1 for 12s, expires in 5m48s")
		a.play(`
			C: MKD /locks/phone
			S: 550 /locks/phone: held by phoneacc@127.0.0.1 for 12s, expires in 5m48s
			C: RMD /locks/phone
			S: 250 /locks/phone released
			C: RMD /locks/phone
			S: 550 /locks/phone: not held
			C: XRMD /locks/phone
			S: 550 /locks/phone: not held`)
		b.play(`
			C: XMKD phone_lock
			S: 257 "/phone_lock" locked, token #, expires in 6m0s
			C: CWD /locks
			S: 250 *
			C: MKD phone
			S: 257 "/locks/phone" locked, token #, expires in 6m0s
			C: XRMD phone
			S: 250 /locks/phone released
			C: RMD ../phone_lock
			S: 250 /phone_lock released
			C: MKD /ever/x
			S: 257 "/ever/x" locked, token #, never expires
			C: RMD /ever/x
			S: 250 /ever/x released`)
	})
}

func TestTheReplyToAGrantHoldsNoSecondQuote(t *testing.T) {
	s := start(t)
	c := s.as("phoneacc")
	for command, quotes := range map[string]int{"MKD /locks/a": 2, "MKD /plain": 2, "PWD": 2, `MKD /locks/"q"`: 6} {
		// RFC 959 appendix II: a quote in the path is doubled.
		if r := c.ask(command); strings.Count(r, `"`) != quotes || !strings.HasPrefix(r, `257 "/`) {
			t.Errorf("%s: %s", command, r)
		}
	}
}

func TestRmdSaysHowTheLockWasLost(t *testing.T) {
	inEachMode(t, func(t *testing.T, s *server, dial func(string) *conn) {
		a, boss := dial("phoneacc"), dial("boss")
		a.want("MKD /locks/old", "257 *")
		s.pass(6 * time.Minute)
		s.pass(12 * time.Second)
		a.play(`
			C: RMD /locks/old
			S: 550 /locks/old: taken away 12s ago: older than 6m0s
			C: RMD /locks/old
			S: 550 /locks/old: not held
			C: MKD /locks/broken
			S: 257 *`)
		boss.breaks("/locks/broken")
		boss.want("MKD /locks/broken", "257 *")
		a.play(`
			C: RMD /locks/broken
			S: 550 /locks/broken: taken away 0s ago: broken by boss@127.0.0.1
			C: RMD /locks/broken
			S: 550 /locks/broken: not yours: held by boss@127.0.0.1 for 0s`)
	})
}

func TestMembersOfAGroupKeepItsLock(t *testing.T) {
	inEachMode(t, func(t *testing.T, s *server, dial func(string) *conn) {
		a, b := dial("phoneacc"), dial("other")
		a.want("MKD /locks/group", "257 *")
		b.play(`
			C: MKD /locks/group/member
			S: 257 "/locks/group/member" locked, token #, expires in 6m0s
			C: MKD /locks/nobody/member
			S: 550 /locks/nobody/member: no such directory to make it in`)
		a.play(`
			C: RMD /locks/group
			S: 550 /locks/group: there are locks below it
			C: RMD /locks/group/member
			S: 550 /locks/group/member: not yours: *`)
		b.want("RMD /locks/group/member", "250 *")
		a.want("RMD /locks/group", "250 *")
		if s.held("/locks/nobody/member") {
			t.Error("a lock without a parent stands")
		}
	})
}

func TestWithoutDirectoriesALockWantsAParentAllTheSame(t *testing.T) {
	s := start(t, plainLocks)
	s.write("/file", "")
	c := s.as("phoneacc")
	for _, name := range []string{"/no/such/dir/a_lock", "/locks/a/b/c", "/file/a_lock"} {
		c.want("MKD "+name, "550 "+name+": no such directory to make it in")
		if n := len(s.table.All()); n != 0 {
			t.Fatalf("%d locks stand after a 550 to MKD %s", n, name)
		}
	}
}

// Of a lock nothing but MKD and RMD changes anything: not its existence, its name, its age or its mode.
func TestOnlyMkdAndRmdChangeALock(t *testing.T) {
	inEachMode(t, func(t *testing.T, s *server, dial func(string) *conn) {
		s.write("/dir/file", "x")
		s.mkdir("/empty")
		a := dial("boss")
		a.play(`
			C: MKD /locks/a
			S: 257 *
			C: MKD /dir/b_lock
			S: 257 *`)
		before := a.ask("MDTM /locks/a")
		s.clock.Advance(30 * time.Second)
		a.play(`
			C: DELE /locks/a
			S: 550 /locks/a: is a lock: MKD takes it, RMD gives it back, nothing else changes it
			C: RNFR /locks/a
			S: 550 /locks/a: is a lock: *
			C: RNTO /locks/b
			S: 503 *
			C: MFMT 20200101000000 /locks/a
			S: 550 /locks/a: is a lock: *
			C: SITE CHMOD 700 /locks/a
			S: 550 /locks/a: is a lock: *
			C: SITE MKDIR /locks/a
			S: 502 *
			C: SITE RMDIR /locks/a
			S: 502 *
			C: SITE UTIME 20200101000000 /locks/a
			S: 502 *
			C: SITE SYMLINK /dir /locks/c
			S: 502 *
			C: STOR /locks/a
			S: 425 *
			-- a directory above a held lock
			C: RNFR /dir
			S: 550 /dir: there are held locks below it
			C: RMD /dir
			S: 550 /dir: there are held locks below it
			C: DELE /dir
			S: 550 /dir: is a directory
			-- it is no lock itself
			C: MFMT 20200101000000 /dir
			S: 213 *
			C: SITE CHMOD 755 /dir
			S: 200 *
			-- nothing takes the name of a held lock, and no directory that of a free one
			C: RNFR /dir/file
			S: 350 *
			C: RNTO /locks/a
			S: 550 /locks/a: is a lock: *
			C: RNFR /empty
			S: 350 *
			C: RNTO /locks/c
			S: 550 /locks/c: is the name of a lock: only MKD makes it
			-- nor does it change what the lock is that somebody puts something into
			C: RNFR /dir/file
			S: 350 *
			C: RNTO /locks/a/file
			S: 250 /locks/a/file is the new name
			C: RNFR /locks/a/file
			S: 350 *
			C: RNTO /dir/file
			S: 250 /dir/file is the new name
			-- what locks are made in stays
			C: RMD /gone
			S: 550 /gone: locks are made below it: it stays
			C: RNFR /gone
			S: 550 /gone: locks are made below it: it stays
			C: RMD /
			S: 550 /: is the root of the tree
			C: RNFR /
			S: 550 /: is the root of the tree`)
		for _, command := range []string{"STOR /locks/a", "APPE /locks/a"} {
			a.check(command, a.upload(command, "x"), "550 *: is a lock: *")
		}
		if after := a.ask("MDTM /locks/a"); after != before || !fits("213 #", after) {
			t.Errorf("the lock's time went from %s to %s", before, after)
		}
		s.wantContent("/dir/file", "x")
		a.play(`
			C: RMD /dir/b_lock
			S: 250 *
			C: RNFR /dir
			S: 350 *
			C: RNTO /renamed
			S: 250 /renamed is the new name
			C: RNFR /renamed
			S: 350 *
			C: RNTO /renamed/inside
			S: 550 /renamed/inside: cannot be moved into itself`)
	})
}

func TestALockThatIsTakenAfterRnfrIsNotMoved(t *testing.T) {
	inEachMode(t, func(t *testing.T, s *server, dial func(string) *conn) {
		s.mkdir("/dir")
		a := dial("phoneacc")
		a.play(`
			C: RNFR /dir
			S: 350 *
			C: MKD /dir/x_lock
			S: 257 *
			C: RNTO /moved
			S: 550 /moved: there are held locks below it`)
		if !s.held("/dir/x_lock") {
			t.Error("the lock was moved or lost")
		}
	})
}

func TestALockShowsWhenItWasAcquired(t *testing.T) {
	inEachMode(t, func(t *testing.T, s *server, dial func(string) *conn) {
		a := dial("phoneacc")
		a.want("MKD /locks/a", "257 *")
		status, _ := s.table.Get("/locks/a")
		acquired := status.Holds[0].Acquired.Wall.UTC()
		stamp, short := acquired.Format(timeValue), acquired.Format("Jan _2 15:04")
		s.clock.Advance(2 * time.Minute)
		a.want("MDTM /locks/a", "213 "+stamp)
		if got := a.fetch("LIST /locks"); !fits("drwxr-xr-x    * phoneacc ftp *# "+short+" a\r\n", got) {
			t.Errorf("LIST: %q", got)
		}
		if got := a.fetch("MLSD /locks"); !fits("type=dir;modify="+stamp+";perm=*; a\r\n", got) {
			t.Errorf("MLSD: %q", got)
		}
		a.play(`
			C: MLST /locks/a
			S: 250-facts about it
			S:  type=dir;modify=` + stamp + `;*; /locks/a
			S: 250 End
			C: STAT /locks
			S: 213-Status of /locks:
			S:  drwxr-xr-x * phoneacc ftp *# ` + short + ` a
			S: 213 End of status
			C: STAT -d /locks/a
			S: 213-*
			S:  drwxr-xr-x * phoneacc * ` + short + ` /locks/a
			S: 213 *`)
	})
}

// `mkdir -p` changes into a directory to see whether it is there, and would take another's lock for its own.
func TestCwdIntoALockIsForThoseWhoSpeakForIt(t *testing.T) {
	inEachMode(t, func(t *testing.T, s *server, dial func(string) *conn) {
		s.link("locks", "/way")
		s.link("locks/a", "/straight")
		a, b := dial("phoneacc"), dial("other")
		a.play(`
			C: MKD /locks/a
			S: 257 *
			C: CWD /locks/a
			S: 250 /locks/a is the current directory
			C: PWD
			S: 257 "/locks/a" is the current directory
			C: CDUP
			S: 250 /locks is the current directory
			C: MKD /open/o
			S: 257 *`)
		b.play(`
			C: CWD /locks/a
			S: 550 /locks/a: held by phoneacc@127.0.0.1 for *
			C: XCWD /way/a
			S: 550 /way/a: held by phoneacc@127.0.0.1 for *
			C: CWD /straight
			S: 550 /straight: held by phoneacc@127.0.0.1 for *
			C: CWD /locks/free
			S: 550 *
			C: PWD
			S: 257 "/" is the current directory
			C: CWD /open/o
			S: 250 *
			C: XCUP
			S: 250 /open is the current directory
			C: MKD /way/a
			S: 550 /way/a: held by phoneacc@*
			C: RMD /way/a
			S: 550 /way/a: not yours: *`)
		a.want("RMD /way/a", "250 /way/a released")
	})
}

func TestALinkToALockChangesNothingOfIt(t *testing.T) {
	s := start(t)
	s.link("locks/a", "/link")
	c := s.as("boss")
	c.want("MKD /locks/a", "257 *")
	c.play(`
		C: MFMT 20200101000000 /link
		S: 550 /link: is a lock: *
		C: SITE CHMOD 700 /link
		S: 550 /link: is a lock: *
		C: RMD /link
		S: 550 /link: is not a directory
		C: DELE /link
		S: 250 /link removed`)
	if !s.held("/locks/a") {
		t.Error("the lock is gone")
	}
}

func TestOrdinaryFilesAndDirectories(t *testing.T) {
	inEachMode(t, func(t *testing.T, s *server, dial func(string) *conn) {
		s.mkdir("/full/sub")
		c := dial("boss")
		c.store("/f", "1")
		c.play(`
			C: MKD dir
			S: 257 "/dir" created
			C: MKD /dir
			S: 550 /dir: is there already
			C: DELE /dir
			S: 550 /dir: is a directory
			C: RMD /f
			S: 550 /f: is not a directory
			C: RMD /full
			S: 550 /full: the directory is not empty
			C: RMD /none
			S: 550 /none: no such file or directory
			C: DELE /none
			S: 550 /none: no such file or directory
			C: MFMT 20200102030405 /f
			S: 213 Modify=20200102030405; /f
			C: MDTM /f
			S: 213 20200102030405
			C: SITE CHMOD 640 /f
			S: 200 /f has mode 640
			C: RNFR /f
			S: 350 *
			C: RNTO /dir/g
			S: 250 /dir/g is the new name
			C: RNFR /full
			S: 350 *
			C: RNTO /dir
			S: 550 /dir: *
			C: RNTO /dir
			S: 503 *
			C: DELE /dir/g
			S: 250 /dir/g removed
			C: RMD /dir
			S: 250 /dir removed`)
	})
}

// Programs call files composer.lock: they can be written, moved and removed while nobody holds a lock of that name.
func TestAFileWithTheNameOfALock(t *testing.T) {
	inEachMode(t, func(t *testing.T, s *server, dial func(string) *conn) {
		c := dial("phoneacc")
		c.store("/old_lock", "1")
		c.want("MKD /old_lock", "550 /old_lock: a file has that name")
		c.want("RMD /old_lock", "550 /old_lock: is not a directory")
		c.store("/old_lock", "2")
		s.wantContent("/old_lock", "2")
		c.play(`
			C: MFMT 20200102030405 /old_lock
			S: 213 *
			C: RNFR /old_lock
			S: 350 *
			C: RNTO /new
			S: 250 *
			C: RNFR /new
			S: 350 *
			C: RNTO /old_lock
			S: 250 *`)
		c.check("APPE", c.upload("APPE /old_lock", "3"), "226 *")
		s.wantContent("/old_lock", "23")
		c.want("DELE /old_lock", "250 *")
		c.want("MKD /old_lock", "257 *")
		for _, command := range []string{"STOR /old_lock", "APPE /old_lock"} {
			c.check(command, c.upload(command, "x"), "550 /old_lock: is a lock: *")
		}
	})
}

// The file goes away and the lock is taken while the new content is on its way.
func TestAnUploadNeverReplacesALockThatWasTakenMeanwhile(t *testing.T) {
	inEachMode(t, func(t *testing.T, s *server, dial func(string) *conn) {
		for _, release := range []bool{false, true} {
			want, content := "550 /old_lock: is a lock: *", "(none)"
			if release { // by now nobody holds it: the file may have the name
				want, content = "226 *", "2"
			}
			s.write("/old_lock", "1")
			a, b := dial("phoneacc"), dial("other")
			d := a.secured(a.data())
			a.want("STOR /old_lock", "150 *")
			b.want("DELE /old_lock", "250 *")
			b.want("MKD /old_lock", "257 *")
			if release {
				b.want("RMD /old_lock", "250 *")
			}
			d.Write([]byte("2"))
			d.Close()
			a.check("STOR", a.reply(), want)
			s.wantContent("/old_lock", content)
			b.ask("RMD /old_lock")
		}
	})
}

func TestALockCannotBeFetched(t *testing.T) {
	for name, o := range map[string]func(*setup){"directories": func(*setup) {}, "no directories": plainLocks} {
		t.Run(name, func(t *testing.T) {
			c := start(t, o).as("phoneacc")
			c.want("MKD /locks/a", "257 *")
			c.data()
			c.want("RETR /locks/a", "550 */locks/a*is a directory*")
		})
	}
}

// A program on the host makes a directory with the name of a held lock that has none.
func TestALockWhoseNameIsTakenOnTheHostWhileItIsHeld(t *testing.T) {
	s := start(t, plainLocks)
	holder := s.as("phoneacc")
	holder.want("SITE LOCK AS job", "200 *")
	holder.want("MKD /locks/x", "257 *")
	same := s.as("phoneacc")
	same.want("SITE LOCK AS job", "200 *")
	other := s.as("other")
	s.mkdir("/locks/x")
	other.want("MKD /locks/x", "550 /locks/x: held by *")
	same.want("MKD /locks/x", "550 /locks/x: is there already")
	if !s.held("/locks/x") {
		t.Error("it was given back")
	}
	holder.want("RMD /locks/x", "250 *")
	other.want("MKD /locks/x", "550 /locks/x: is there already")
}

// An administrator who saw one holder must not end another one's lock.
func TestABreakEndsTheHoldWithTheTokenOnly(t *testing.T) {
	inEachMode(t, func(t *testing.T, s *server, dial func(string) *conn) {
		a, b, boss := dial("phoneacc"), dial("other"), dial("boss")
		a.want("MKD /locks/job", "257 *")
		status, _ := s.table.Get("/locks/job")
		seen := status.Holds[0].Token
		a.want("RMD /locks/job", "250 *")
		b.want("MKD /locks/job", "257 *")
		boss.want("SITE LOCK BREAK /locks/job", "550 /locks/job: held by other@127.0.0.1 for *, token *: say SITE LOCK BREAK with the token before the path")
		boss.want(fmt.Sprintf("SITE LOCK BREAK %d /locks/job", seen), fmt.Sprintf("550 /locks/job: token %d is not the lock's: held by other@127.0.0.1 *, token *", seen))
		b.want("RMD /locks/job", "250 *")
	})
}

// RNFR is good for one RNTO, whether that succeeds or not.
func TestRnfrIsForOneRnto(t *testing.T) {
	s := start(t)
	s.write("/a", "x")
	s.as("boss").play(`
		C: RNTO /b
		S: 503 *
		C: RNFR /a
		S: 350 *
		C: RNFR /none
		S: 550 *
		C: RNTO /b
		S: 503 *
		C: RNFR /a
		S: 350 *
		C: NOOP
		S: 200 *
		C: RNTO /b
		S: 250 *
		C: RNTO /c
		S: 503 *
		C: RNFR /b
		S: 350 *
		C: RNTO /no/where
		S: 550 *
		C: RNTO /c
		S: 503 *`)
	s.wantContent("/b", "x")
}
