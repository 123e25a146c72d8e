package driver

import (
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/event"
	"github.com/ftplockd/ftplockd/internal/lock"
)

func TestMkdAcquiresALockAndRmdReleasesIt(t *testing.T) {
	inBothModes(t, `
		# RFC 959 page 63: the path in quotes comes first
		a MKD /locks/phone => 257 "/locks/phone" locked, token #, expires in 6m0s
		b MKD /locks/phone => 550 /locks/phone: held by phoneacc@127.0.0.1 for 0s, expires in 6m0s
		b XMKD /locks/phone => 550 /locks/phone: held by phoneacc@127.0.0.1 for 0s, expires in 6m0s
		b RMD /locks/phone => 550 /locks/phone: not yours: held by phoneacc@127.0.0.1 for 0s
		- pass 12s
		b MKD /locks/phone => 550 /locks/phone: held by phoneacc@127.0.0.1 for 12s, expires in 5m48s
		a MKD /locks/phone => 550 /locks/phone: held by phoneacc@127.0.0.1 for 12s, expires in 5m48s
		a RETR /locks/phone => 550 */locks/phone*is a directory*
		a RMD /locks/phone => 250 /locks/phone released
		a RMD /locks/phone => 550 /locks/phone: not held
		a XRMD /locks/phone => 550 /locks/phone: not held
		b XMKD phone_lock => 257 "/phone_lock" locked, token #, expires in 6m0s
		b CWD /locks => 250 *
		b MKD phone => 257 "/locks/phone" locked, token #, expires in 6m0s
		b XRMD phone => 250 /locks/phone released
		b RMD ../phone_lock => 250 /phone_lock released
		b MKD /ever/x => 257 "/ever/x" locked, token #, never expires
		b RMD /ever/x => 250 /ever/x released
		# RFC 959 appendix II: a quote in the path is doubled
		b MKD /locks/"q" => 257 "/locks/""q""" locked, token #, expires in 6m0s
		b CWD /locks/"q" => 250 /locks/"q" is the current directory
		b PWD => 257 "/locks/""q""" is the current directory
		b RMD /locks/"q" => 250 *
		# lost locks
		a MKD /locks/old => 257 *
		- pass 6m
		- pass 12s
		a RMD /locks/old => 550 /locks/old: taken away 12s ago: older than 6m0s
		a RMD /locks/old => 550 /locks/old: not held
		a MKD /locks/broken => 257 *
		- break /locks/broken
		boss MKD /locks/broken => 257 *
		a RMD /locks/broken => 550 /locks/broken: taken away 0s ago: broken by boss@127.0.0.1
		a RMD /locks/broken => 550 /locks/broken: not yours: held by boss@127.0.0.1 for 0s
		# groups
		a MKD /locks/group => 257 *
		b MKD /locks/group/member => 257 "/locks/group/member" locked, token #, expires in 6m0s
		b MKD /locks/nobody/member => 550 /locks/nobody/member: the directory above it does not exist
		- free /locks/nobody/member
		b MKD /no/such/dir/a_lock => 550 /no/such/dir/a_lock: the directory above it does not exist
		- free /no/such/dir/a_lock
		a RMD /locks/group => 550 /locks/group: there are locks below it
		a RMD /locks/group/member => 550 /locks/group/member: not yours: *
		b RMD /locks/group/member => 250 *
		a RMD /locks/group => 250 *`)
}

// A held lock that has no rule after a reload stays a lock until it ends: MKD of its name is refused.
func TestTheNameOfAHeldLockWithoutARuleIsNoDirectory(t *testing.T) {
	eachMode(t, func(t *testing.T, s *server) {
		a, b := s.as("phoneacc"), s.as("other")
		a.want("MKD /a_lock", `257 *`)
		rules, err := lock.NewRules([]lock.Rule{{Match: "/other/*"}})
		if err != nil {
			t.Fatal(err)
		}
		s.table.SetRules(rules)
		b.want("MKD /a_lock", "550 /a_lock: held by *")
		a.want("MKD /a_lock", "550 /a_lock: held by *")
		s.link(".", "/link")
		b.want("MKD /link/a_lock", "550 *: held by *")
		a.want("RMD /a_lock", "250 /a_lock released")
		b.want("MKD /a_lock", `257 "/a_lock" created*`)
		b.want("RMD /a_lock", "250 /a_lock removed")
	})
}

// No command but MKD and RMD changes the existence, the name, the age or the mode of a lock.
func TestOnlyMkdAndRmdChangeALock(t *testing.T) {
	inBothModes(t, `
		- write /dir/file x
		- mkdir /empty
		- link /link locks/a
		boss MKD /locks/a => 257 *
		boss MKD /dir/b_lock => 257 *
		boss MDTM /locks/a => 213 20260101000000
		- late 30s
		boss DELE /locks/a => 550 /locks/a: is a lock: only MKD acquires it and RMD releases it
		boss RNFR /locks/a => 550 /locks/a: is a lock: *
		boss RNTO /locks/b => 503 *
		boss MFMT 20200101000000 /locks/a => 550 /locks/a: is a lock: *
		boss SITE CHMOD 700 /locks/a => 550 /locks/a: is a lock: *
		boss SITE MKDIR /locks/a => 500 *
		boss SITE RMDIR /locks/a => 500 *
		boss SITE UTIME 20200101000000 /locks/a => 500 *
		boss SITE SYMLINK /dir /locks/c => 500 *
		boss STOR /locks/a <<< x => 550 *: is a lock: *
		boss APPE /locks/a <<< x => 550 *: is a lock: *
		# by a link to it
		boss MFMT 20200101000000 /link => 550 /link: is a lock: *
		boss SITE CHMOD 700 /link => 550 /link: is a lock: *
		boss RMD /link => 550 /link: is a link: *
		boss DELE /link => 550 /link: is a lock: *
		# a directory above a held lock
		boss RNFR /dir => 550 /dir: there are held locks below it
		boss RMD /dir => 550 /dir: there are held locks below it
		boss DELE /dir => 550 /dir: is a directory
		# the directory is no lock itself
		boss MFMT 20200101000000 /dir => 213 *
		boss SITE CHMOD 755 /dir => 200 *
		# no file gets the name of a held lock, and no directory that of a free one
		boss RNFR /dir/file => 350 *
		boss RNTO /locks/a => 550 /locks/a: is a lock: *
		boss RNFR /empty => 350 *
		boss RNTO /locks/c => 550 /locks/c: is the name of a lock: only MKD makes it
		# files in it do not change the lock
		boss RNFR /dir/file => 350 *
		boss RNTO /locks/a/file => 250 /locks/a/file is the new name
		boss RNFR /locks/a/file => 350 *
		boss RNTO /dir/file => 250 /dir/file is the new name
		# the fixed directories of rules stay
		boss RMD /gone => 550 /gone: required by a lock rule
		boss RNFR /gone => 550 /gone: required by a lock rule
		boss RMD / => 550 /: is the root of the tree
		boss RNFR / => 550 /: is the root of the tree
		boss SITE CHMOD 0 / => 550 /: is the root of the tree
		boss SITE CHMOD 0 /gone => 550 /gone: required by a lock rule
		boss MDTM /locks/a => 213 20260101000000
		- held /locks/a
		boss RMD /dir/b_lock => 250 *
		# a lock that is acquired after RNFR is not moved
		boss RNFR /dir => 350 *
		boss MKD /dir/x_lock => 257 *
		boss RNTO /moved => 550 /dir: there are held locks below it
		boss RMD /dir/x_lock => 250 *
		boss RNFR /dir => 350 *
		- rename dir elsewhere
		boss RNTO /moved => 550 /dir: no such file or directory
		- rename elsewhere dir
		boss RNFR /dir => 350 *
		boss RNTO /renamed => 250 /renamed is the new name
		boss RNFR /renamed => 350 *
		boss RNTO /renamed/inside => 550 /renamed/inside: cannot be moved into itself`)
}

func TestALockShowsWhenItWasAcquired(t *testing.T) {
	inBothModes(t, `
		a MKD /locks/a => 257 *
		- late 2m
		a MDTM /locks/a => 213 20260101000000
		a LIST /locks => 226 * >>> drwxr-xr-x    * phoneacc ftp *# Jan  1 00:00 a\r\n
		a MLSD /locks => 226 * >>> type=dir;modify=20260101000000;unix.mode=0755; a\r\n
		a MLST /locks/a => 250-facts of /locks/a\n type=dir;modify=20260101000000;*; /locks/a\n250 End
		a STAT /locks => 213-Status of /locks:\n drwxr-xr-x * phoneacc ftp *# Jan  1 00:00 a\n213 End of status
		a STAT -d /locks/a => 213-*\n drwxr-xr-x * phoneacc * Jan  1 00:00 /locks/a\n213 *`)
}

// `mkdir -p` changes into a directory to check that it exists, and would take another client's lock for its own.
func TestOnlyTheJobOfALockMayChangeIntoIt(t *testing.T) {
	inBothModes(t, `
		- link /way locks
		- link /straight locks/a
		a MKD /locks/a => 257 *
		a CWD /locks/a => 250 /locks/a is the current directory
		a PWD => 257 "/locks/a" is the current directory
		a CDUP => 250 /locks is the current directory
		a MKD /open/o => 257 *
		b CWD /locks/a => 550 /locks/a: not yours: held by phoneacc@127.0.0.1 for *
		b XCWD /way/a => 550 /way/a: not yours: held by phoneacc@127.0.0.1 for *
		b CWD /straight => 550 /straight: not yours: held by phoneacc@127.0.0.1 for *
		b CWD /locks/free => 550 *
		b PWD => 257 "/" is the current directory
		b CWD /open/o => 250 *
		b XCUP => 250 /open is the current directory
		b MKD /way/a => 550 /way/a: held by phoneacc@*
		b RMD /way/a => 550 /way/a: not yours: *
		a RMD /way/a => 250 /way/a released`)
}

func TestOrdinaryFilesAndDirectories(t *testing.T) {
	plays(t, `
		- mkdir /full/sub
		boss STOR /f <<< 1 => 226 *
		boss MKD dir => 257 "/dir" created
		boss MKD /dir => 550 /dir: is there already
		boss DELE /dir => 550 /dir: is a directory
		boss RMD /f => 550 /f: is not a directory
		boss RMD /full => 550 /full: the directory is not empty
		boss RMD /none => 550 /none: no such file or directory
		boss DELE /none => 550 /none: no such file or directory
		boss RNFR /f => 350 *
		boss RNTO /dir/g => 250 /dir/g is the new name
		boss RNFR /full => 350 *
		boss RNTO /dir => 550 /dir: *
		boss RNTO /dir => 503 *
		# RNFR is good for one RNTO, whether that succeeds or not
		boss RNFR /dir/g => 350 *
		boss RNFR /none => 550 *
		boss RNTO /b => 503 *
		boss RNFR /dir/g => 350 *
		boss NOOP => 200 *
		boss RNTO /no/where => 550 *
		boss RNTO /b => 503 *
		boss DELE /dir/g => 250 /dir/g removed
		boss RMD /dir => 250 /dir removed`)
}

// Some files have the names of locks, such as composer.lock. While no lock of that name is held, they are ordinary files.
func TestAFileWithTheNameOfALock(t *testing.T) {
	inBothModes(t, `
		a STOR /old_lock <<< 1 => 226 *
		a MKD /old_lock => 550 /old_lock: a file has that name
		a RMD /old_lock => 550 /old_lock: is not a directory
		a MFMT 20200102030405 /old_lock => 213 *
		a RNFR /old_lock => 350 *
		a RNTO /new => 250 *
		a RNFR /new => 350 *
		a RNTO /old_lock => 250 *
		a APPE /old_lock <<< 2 => 226 *
		- file /old_lock 12
		a DELE /old_lock => 250 *
		a MKD /old_lock => 257 *
		a STOR /old_lock <<< x => 550 /old_lock: is a lock: *
		a APPE /old_lock <<< x => 550 /old_lock: is a lock: *`)
}

// A lock of the file's name is acquired during the upload. If it is held at the end of the upload, the upload is refused.
func TestAnUploadNeverReplacesALock(t *testing.T) {
	inBothModes(t, `
		- write /old_lock 1
		a STOR /old_lock <<< 2 ...
		b DELE /old_lock => 250 *
		b MKD /old_lock => 257 *
		a => 550 /old_lock: is a lock: *
		- held /old_lock
		b RMD /old_lock => 250 *
		a STOR /old_lock <<< 3 ...
		b MKD /old_lock => 257 *
		b RMD /old_lock => 250 *
		a => 226 *
		- file /old_lock 3`)
}

// The sessions have one account and address.
func TestADifferentJobKeyReleasesNothing(t *testing.T) {
	inBothModes(t, `
		a SITE LOCK AS one => 200 *
		a MKD /locks/x => 257 *
		a3 SITE LOCK AS two => 200 *
		a3 MKD /locks/x => 550 /locks/x: held by *
		- close a
		a3 RMD /locks/x => 550 /locks/x: not yours: held by phoneacc@127.0.0.1 for 0s, your account but another job key
		a3 STOR /locks/x/f <<< x => 550 *: lies in the lock /locks/x, *
		- held /locks/x
		a2 RMD /locks/x => 250 *
		# the transfer of a program with several connections
		a SITE LOCK AS one => 200 *
		a4 SITE LOCK AS two => 200 *
		a MKD /locks/y => 257 *
		- pass 1s
		a4 STOR /f <<< x => 226 *
		a4 RMD /locks/y => 550 /locks/y: not yours: *
		a RMD /locks/y => 250 *`)
}

// A program on the host makes a directory with the name of a held lock that has none.
func TestADirectoryOfTheHostWithTheNameOfAHeldLock(t *testing.T) {
	plays(t, `
		a SITE LOCK AS job => 200 *
		a2 SITE LOCK AS job => 200 *
		a MKD /locks/x => 257 *
		- mkdir /locks/x
		b MKD /locks/x => 550 /locks/x: held by *
		a2 MKD /locks/x => 257 *adopted from token 1*
		- held /locks/x
		a RMD /locks/x => 250 *
		b MKD /locks/x => 550 /locks/x: is there already`, plainLocks)
}

// A directory that a program on the host made is its lock, whether it is empty or not.
func TestClientsChangeNothingInALockOfTheHost(t *testing.T) {
	const inside = ": lies in the lock /old_lock, held by host since *"
	team := lock.Rule{Match: "/open_team", MaxAge: time.Hour, Contention: &lock.Contention{Members: lock.MembersAnyone}}
	s := start(t, func(o *setup) { o.rules = append(o.rules, team) })
	s.play(t, `
		- mkdir /new_lock
		- mkdir /old_lock/dir
		- mkdir /old_lock/empty
		- mkdir /open_team
		- mkdir /above/x_lock/sub
		- write /old_lock/file x
		- write /free x
		- link /way old_lock
		boss MKD /new_lock => 550 /new_lock: held by host since *
		boss SITE LOCK INFO /new_lock => 211-Lock /new_lock\n not held: held by host since *\n type=busy;waiting=0;mkd=later; /new_lock\n211 End
		boss RNFR /new_lock => 550 /new_lock: is a lock: *
		boss MFMT 20200101000000 /new_lock => 550 /new_lock: is a lock: *
		boss CWD /new_lock => 550 /new_lock: held by host *
		boss MKD /old_lock => 550 /old_lock: held by host since *
		boss SITE LOCK INFO /old_lock => 211-Lock /old_lock\n not held: held by host since *
		boss RMD /old_lock => 550 /old_lock: held by host since *
		boss RNFR /old_lock => 550 /old_lock: is a lock: *
		boss RNFR /above => 550 /above: there are held locks below it
		boss STOR /old_lock/new <<< x => 550 /old_lock/new`+inside+`
		boss STOR /way/new <<< x => 550 /way/new`+inside+`
		boss STOR /new_lock/f <<< x => 550 /new_lock/f: lies in the lock /new_lock, held by host since *
		boss APPE /old_lock/file <<< x => 550 /old_lock/file`+inside+`
		boss DELE /old_lock/file => 550 /old_lock/file`+inside+`
		boss RNFR /old_lock/file => 550 /old_lock/file`+inside+`
		boss RNFR /free => 350 *
		boss RNTO /old_lock/dir/free => 550 /old_lock/dir/free`+inside+`
		boss MFMT 20200101000000 /old_lock/file => 550 /old_lock/file`+inside+`
		boss MKD /old_lock/new => 550 /old_lock/new`+inside+`
		boss RMD /old_lock/empty => 550 /old_lock/empty`+inside+`
		boss MKD /old_lock/dir/x_lock => 550 /old_lock/dir/x_lock`+inside+`
		boss MKD /way/x_lock => 550 /way/x_lock`+inside+`
		boss RETR /old_lock/file => 226 * >>> x
		- file /old_lock/new (none)
		# members = "anyone", and the holder of a lock in it
		boss MKD /open_team/x_lock => 257 *
		boss STOR /open_team/x_lock/f <<< x => 226 *
		boss STOR /open_team/f <<< x => 550 /open_team/f: lies in the lock /open_team, held by host since *
		- rename /old_lock /old
		boss STOR /old/new <<< x => 226 *
		boss MKD /old_lock => 257 *
		# a path through a link is the name of no lock, and neither is a path without a directory
		- mkdir /old/sub
		- link /locks/way ../old
		boss MKD /locks/way/sub/x => 257 "/locks/way/sub/x" created
		boss MKD /locks/way/sub/x_lock => 257 "/locks/way/sub/x_lock" locked, *
		- held /old/sub/x_lock
		boss MKD /locks/none/x => 550 /locks/none/x: the directory above it does not exist`)

	// After a reload no rule matches the lock of the holder.
	boss := s.as("boss")
	boss.want("MKD /open_team/y_lock", "257 *")
	rules, err := lock.NewRules([]lock.Rule{team})
	if err != nil {
		t.Fatal(err)
	}
	s.table.SetRules(rules)
	boss.store("/open_team/y_lock/f", "x")
}

// Without directories for locks a program on the host takes none.
func TestWithoutDirectoriesTheHostHasNoLocks(t *testing.T) {
	plays(t, `
		- mkdir /old_lock
		boss STOR /old_lock/f <<< x => 226 *
		boss RNFR /old_lock => 350 *
		boss RNTO /old => 250 *`, plainLocks)
}

func TestARenameOfADirectoryThatTakesTooLongToSearchIsRefused(t *testing.T) {
	s := start(t)
	s.mkdir("/dir/sub")
	a := s.as("boss")
	a.want("RNFR /dir", "350 *")
	s.driver.bounds.search = 0
	a.want("RNFR /dir", "550 /dir: too many files below it to search for locks: rename it on the server's machine")
}

// If the server cannot find out whether a program on the host holds a lock, it changes nothing in it.
func TestAFaultOfTheDiskIsNoFreeLock(t *testing.T) {
	s := start(t)
	s.mkdir("/locks/cut")
	s.link("cut", "/locks/way")
	s.driver.tree = &exhausted{s.driver.tree, 1000}
	s.play(t, `
		boss STOR /locks/cut/f <<< x => 451 *
		boss MKD /locks/cut/d => 451 *
		boss RMD /locks/cut => 451 *
		boss CWD /locks/cut => 451 *
		boss SITE LOCK INFO /locks/cut => 451 *
		boss RNFR /locks/way => 350 *
		boss RNTO /cut => 451 *
		- file /locks/cut/f (none)`)
}

// The event of a refused MKD has the reason that the client gets.
func TestARefusedMkdIsReported(t *testing.T) {
	var events notebook
	plays(t, `
		- mkdir /old_lock
		boss MKD /old_lock/x_lock => 550 /old_lock/x_lock: lies in the lock /old_lock, held by host since *`, func(o *setup) {
		o.events = func(batch []event.Event) {
			for _, e := range batch {
				if e.Kind == event.Refuse {
					events.note("%s %s %s", e.Lock, e.Cause, e.Reason)
				}
			}
		}
	})
	events.await(t, "/old_lock/x_lock protected lies in the lock /old_lock, held by host since ", 1)
}

// RMD of a lock that the client has lost is refused. It removes no directory that a program on the host has made since.
func TestRmdOfALostLockRemovesNoDirectory(t *testing.T) {
	plays(t, `
		a MKD /locks/a => 257 *
		- pass 7m
		- mkdir /locks/a
		a RMD /locks/a => 550 /locks/a: *
		- rename /locks/a /kept`, plainLocks)
}
