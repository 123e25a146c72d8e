package driver

import (
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// wantLeftovers checks the files that were moved aside when their locks ended: a line "lock file content" for each.
func (s *server) wantLeftovers(want string) {
	s.t.Helper()
	top := filepath.Join(s.root, ".ftplockd-leftovers")
	var found []string
	err := filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		dir, file, _ := strings.Cut(strings.TrimPrefix(p, top+"/"), "/")
		of, _ := url.PathUnescape(dir[strings.LastIndexByte(dir, ',')+1:])
		content, err := os.ReadFile(p)
		found = append(found, of+" "+file+" "+string(content))
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		s.t.Error(err)
	}
	if got := strings.Join(found, "\n"); got != want {
		s.t.Errorf("leftovers:\n%s\nwant:\n%s", got, want)
	}
}

// job returns a client of one job: its sessions act for each other's locks.
func (s *server) job(account string) *conn {
	s.t.Helper()
	c := s.as(account)
	c.want("SITE LOCK AS job", "200 *")
	return c
}

const notYours = "550 *: lies in the lock /x_lock, which you do not hold"

func TestEveryCommandOfTheHolderWorksInItsLock(t *testing.T) {
	inBothModes(t, `
		boss TYPE I => 200 *
		boss MKD /x_lock => 257 *
		boss SIZE /x_lock/f => 550 /x_lock/f: no such file or directory
		boss LIST /x_lock => 226 *
		boss CWD /x_lock => 250 *
		boss AVBL => 213 #
		boss ALLO 3 => 200 *
		boss STOR /x_lock/f <<< abc => 226 *
		boss APPE f <<< def => 226 *
		boss REST 4 => 350 *
		boss STOR f <<< XYZ => 226 *
		boss REST 3 => 350 *
		boss RETR f => 226 * >>> dXYZ
		boss MFMT 20200102030405 f => 213 Modify=20200102030405; /x_lock/f
		boss MDTM f => 213 20200102030405
		boss SITE CHMOD 640 /x_lock/f => 200 /x_lock/f has mode 640
		boss MLST f => 250-*\n type=file;size=7;modify=20200102030405;*unix.mode=0640; /x_lock/f\n250 *
		boss XCRC f => 250 *
		boss STOR /x_lock/ftp <<< y => 226 *
		boss MKD dir => 257 "/x_lock/dir" created
		boss MKD dir/sub => 257 "/x_lock/dir/sub" created
		boss STOR dir/sub/g <<< deep => 226 *
		boss NLST /x_lock/dir/s* => 226 * >>> /x_lock/dir/sub\r\n
		boss MLSD => 226 * >>> type=dir;*; dir\r\ntype=file;size=7;*; f\r\ntype=file;size=1;*; ftp\r\n
		boss RMD /x_lock => 550 /x_lock: the directory is not empty: remove what is in it first
		boss RMD dir/sub => 550 /x_lock/dir/sub: the directory is not empty
		boss RNFR dir => 350 *
		boss RNTO renamed => 250 *
		boss STOR renamed/h <<< also => 226 *
		# a rename replaces a file
		boss RNFR renamed/sub/g => 350 *
		boss RNTO ftp => 250 *
		boss RMD renamed/sub => 250 *
		- break /x_lock
		boss MKD /x_lock => 257 *
		boss LIST /x_lock => 226 *
		- left /x_lock f abcdXYZ, /x_lock ftp deep, /x_lock renamed/h also`)
}

// Each command checks the lock as for a protected file.
func TestOthersChangeNothingInALock(t *testing.T) {
	inBothModes(t, `
		a MKD /x_lock => 257 *
		a STOR /x_lock/f <<< x => 226 *
		a MKD /x_lock/dir => 257 *
		# an administrator has no more rights here
		boss STOR /x_lock/f <<< y => `+notYours+`
		boss STOR /x_lock/dir/f <<< y => `+notYours+`
		boss STOU /x_lock <<< y => `+notYours+`
		boss STOU /x_lock/f <<< y => `+notYours+`
		boss DELE /x_lock/f => `+notYours+`
		boss MFMT 20200101000000 /x_lock/dir => `+notYours+`
		boss RMD /x_lock => 550 /x_lock: not yours: *
		boss CWD /x_lock => 550 /x_lock: not yours: held by phoneacc@*
		# another session of the holder's account has none
		a2 STOR /x_lock/f <<< y => `+notYours+`
		a2 RMD /x_lock => 550 /x_lock: not yours: *
		boss RETR /x_lock/f => 226 * >>> x
		a NLST /x_lock => 226 * >>> /x_lock/dir\r\n/x_lock/f\r\n
		# a read-only account changes nothing in its own lock
		reader MKD /r_lock => 257 *
		reader STOR /r_lock/f <<< y => 550 *: this account may not change files
		reader MKD /r_lock/dir => 550 *: this account may not change files
		reader RMD /r_lock => 250 *`)
}

func TestLinksAndRenamesDoNotBypassProtection(t *testing.T) {
	inBothModes(t, `
		- write /phone.tsv old
		- write /dir/phone.tsv old
		- mkdir /sub
		- link /sub/link ../dir
		a MKD /a_lock => 257 *
		a STOR /a_lock/new <<< new => 226 *
		# out of the lock, to publish a directory, and into it
		a MKD /a_lock/release => 257 *
		a STOR /a_lock/release/f <<< of it => 226 *
		a RNFR /a_lock/release => 350 *
		a RNTO /release => 250 *
		- file /release/f of it
		a RNFR /release/f => 350 *
		a RNTO /a_lock/f => 250 *
		a DELE /a_lock/f => 250 *
		a RNFR /a_lock/new => 350 *
		a RNTO /phone.tsv => 550 /phone.tsv: protected by the lock /phone_lock, which you do not hold
		a MKD /phone_lock => 257 *
		a RNFR /a_lock/new => 350 *
		- late 7m
		a RNTO /phone.tsv => 550 *: * the lock /*_lock, taken away *
		- pass 0s
		a RMD /a_lock => 550 *
		a MKD /a_lock => 257 *
		a RNFR /sub/link => 350 *
		a RNTO /a_lock/link => 250 *
		a NLST /a_lock/link => 226 * >>> /a_lock/link/phone.tsv\r\n
		a STOR /a_lock/link/phone.tsv <<< new => 550 *: protected by the lock /dir/phone_lock, which you do not hold
		a DELE /a_lock/link/phone.tsv => 550 *: protected by the lock /dir/phone_lock, which you do not hold
		a MKD /a_lock/link/x_lock => 257 "/a_lock/link/x_lock" locked, *
		- held /dir/x_lock
		- file /dir/phone.tsv old
		- file /phone.tsv old`, protected)
}

func TestAnUploadIsDiscardedIfItsLockEnds(t *testing.T) {
	inBothModes(t, `
		a MKD /a_lock => 257 *
		a STOR /a_lock/f <<< first => 226 *
		a STOR /a_lock/f <<< unfinished ...
		- break /a_lock
		b MKD /a_lock => 257 *
		b NLST /a_lock => 226 *
		b STOR /a_lock/f <<< next => 226 *
		a => 550 /a_lock/f: lies in the lock /a_lock, taken away #s ago: broken by boss@*
		b NLST /a_lock => 226 * >>> /a_lock/f\r\n
		b RETR /a_lock/f => 226 * >>> next
		- left /a_lock f first
		b DELE /a_lock/f => 250 *
		b RMD /a_lock => 250 *`)
}

func TestTheNextHolderOfAJobFindsTheFiles(t *testing.T) {
	inBothModes(t, `
		a SITE LOCK AS job => 200 *
		a2 SITE LOCK AS job => 200 *
		a3 SITE LOCK AS job => 200 *
		a MKD /locks/g => 257 *
		a STOR /locks/g/f <<< x => 226 *
		b MKD /locks/g/m => 257 *
		b STOR /locks/g/m/f <<< member => 226 *
		# an upload that began before the adoption is refused
		a STOR /locks/g/f <<< late ...
		a2 MKD /locks/g => 257 "/locks/g" locked, token #, adopted from token #, *
		a => 550 /locks/g/f: lies in the lock /locks/g, *
		a2 RETR /locks/g/f => 226 * >>> x
		b STOR /locks/g/m/g <<< more => 226 *
		- break /locks/g/m
		a2 STOR /locks/g/f <<< y => 226 *
		- left /locks/g/m f member, /locks/g/m g more
		# if the 257 of an adoption is lost, the job keeps its lock
		a3 MKD /locks/g ...
		- leave a3
		- alone
		- break /locks/g
		- left /locks/g/m f member, /locks/g/m g more, /locks/g f y
		b MKD /locks/g => 257 *
		b RMD /locks/g => 250 *`)
}

func TestFilesOfGroupsAndMembersOverRestarts(t *testing.T) {
	inBothModes(t, `
		a SITE LOCK AS job => 200 *
		a MKD /locks/g => 257 *
		a MKD /locks/a => 257 *
		b SITE LOCK AS another => 200 *
		b MKD /locks/g/m => 257 *
		b MKD /locks/g/m/n => 257 *
		a STOR /locks/a/f <<< 0 => 226 *
		b STOR /locks/g/m/n/f <<< 3 => 226 *
		a STOR /locks/g/f <<< 1 => 226 *
		b STOR /locks/g/m/f <<< 2 => 226 *
		b STOR /locks/g/f <<< x => 550 *: lies in the lock /locks/g, which you do not hold
		a STOR /locks/g/m/f <<< x => 550 *: lies in the lock /locks/g/m, which you do not hold
		a NLST /locks/g => 226 * >>> /locks/g/f\r\n/locks/g/m\r\n
		- restart 1m
		a SITE LOCK AS job => 200 *
		a RETR /locks/a/f => 226 * >>> 0
		a STOR /locks/a/f <<< again => 226 *
		a RETR /locks/g/m/n/f => 226 * >>> 3
		a DELE /locks/a/f => 250 *
		a RMD /locks/a => 250 *
		- restart 7m
		- pass 0s
		- sweep
		- left /locks/g f 1, /locks/g/m f 2, /locks/g/m/n f 3
		b MKD /locks/g => 257 *
		b NLST /locks/g => 226 *`, func(o *setup) { o.rules[0].Contention = &lock.Contention{Members: lock.MembersAnyone} })
}

func TestFilesInSharedLocksAndInLocksForAnyone(t *testing.T) {
	rules := func(o *setup) {
		o.rules = []lock.Rule{
			{Match: "**/s_lock", Contention: &lock.Contention{Shared: []string{"phoneacc", "other"}}},
			{Match: "**/any_lock", Release: lock.ReleaseAnyone},
			{Match: "**/idle_lock", MaxIdle: 30 * time.Minute},
		}
	}
	inBothModes(t, `
		a MKD /s_lock => 257 *
		a STOR /s_lock/f <<< x => 550 *: lies in the lock /s_lock, which you hold shared, not exclusively
		b MKD /s_lock => 257 *
		b MKD /s_lock/dir => 550 *: lies in the lock /s_lock, which you hold shared, not exclusively
		a RMD /s_lock => 250 *
		b RMD /s_lock => 250 *
		a MKD /any_lock => 257 *
		a STOR /any_lock/f <<< x => 226 *
		b RMD /any_lock => 550 /any_lock: the directory is not empty: *
		a DELE /any_lock/f => 250 *
		b RMD /any_lock => 250 *
		a MKD /idle_lock => 257 *
		a STOR /idle_lock/f <<< x => 226 *
		- alone
		- pass 29m
		- left
		- pass 2m
		- left /idle_lock f x`, rules)
}

func TestAHolderInItsHomeSeesItsOwnNames(t *testing.T) {
	inBothModes(t, `
		bob MKD a_lock => 257 "/work/a_lock" locked, *
		bob STOR a_lock/f <<< x => 226 *
		bob SIZE /work/a_lock/f => 213 1
		a STOR /home/bob/work/a_lock/f <<< y => 550 *: lies in the lock /home/bob/work/a_lock, which you do not hold
		- break /home/bob/work/a_lock
		bob STOR a_lock/f <<< y => 550 *
		- left /home/bob/work/a_lock f x
		# the path of files that were moved aside is not in its home
		bob RMD a_lock => 550 /work/a_lock: taken away 0s ago: broken by boss@127.0.0.1`)
}

// Turning directories on changes nothing for the files in a lock.
func TestFilesInALockStayWhenLocksGetDirectories(t *testing.T) {
	plays(t, `
		a SITE LOCK AS job => 200 *
		a MKD /a_lock => 257 *
		a STOR /a_lock/f <<< x => 226 *
		- directories
		- restart 1s
		a SITE LOCK AS job => 200 *
		a STOR /a_lock/g <<< y => 226 *
		a NLST /a_lock => 226 * >>> /a_lock/f\r\n/a_lock/g\r\n
		a RETR /a_lock/f => 226 * >>> x
		a DELE /a_lock/f => 250 *
		a DELE /a_lock/g => 250 *
		a RMD /a_lock => 250 *
		a MKD /a_lock => 257 *`, plainLocks)
}

// A start finds no directory above the lock, so the lock has none. Its first file makes one.
func TestALockWithoutADirectoryTakesFiles(t *testing.T) {
	plays(t, `
		a MKD /dir => 257 *
		a SITE LOCK AS job => 200 *
		a MKD /dir/a_lock => 257 *
		- rename /dir /away
		- restart 1s
		- mkdir /dir
		a SITE LOCK AS job => 200 *
		a STOR /dir/a_lock/f <<< x => 226 *
		a RETR /dir/a_lock/f => 226 * >>> x
		a RMD /dir/a_lock => 550 /dir/a_lock: the directory is not empty: *
		a DELE /dir/a_lock/f => 250 *
		a RMD /dir/a_lock => 250 *`)
}

func TestLeftoversAreRemovedWhenTheyAreOldEnough(t *testing.T) {
	inBothModes(t, `
		a MKD /a_lock => 257 *
		a STOR /a_lock/f <<< x => 226 *
		- break /a_lock
		- age /.ftplockd-leftovers/* 167h
		- sweep
		- left /a_lock f x
		- age /.ftplockd-leftovers/* 169h
		- sweep
		- left`, func(o *setup) { o.settings.Locks.LeftoverMaxAge.Duration = 168 * time.Hour })
}

func TestHiddenNamesAreRefusedByEveryCommand(t *testing.T) {
	eachMode(t, func(t *testing.T, s *server) {
		c := s.as("boss")
		c.want("MKD /locks/old", "257 *")
		c.store("/locks/old/f", "x")
		c.Breaks("/locks/old")
		c.want("MKD /locks/a", "257 *")
		c.store("/locks/a/f", "x")
		s.write("/free", "free")
		left := onDisk(t, filepath.Join(s.root, ".ftplockd-leftovers"))
		for _, name := range []string{"/.ftplockd-leftover-x", "/.ftplockd-leftovers/" + left[0] + "/f", "/locks/a/../.ftplockd-leftover-1/f", "/.ftplockd-x"} {
			for _, command := range []string{
				"MKD", "RMD", "CWD", "DELE", "RNFR", "SIZE", "MDTM", "MLST", "STAT", "HASH", "AVBL", "MFMT 20200101000000", "SITE CHMOD 700",
				"SITE LOCK INFO", "SITE LOCK RENEW", "SITE LOCK BREAK", "STOR", "APPE", "STOU", "RETR", "LIST", "NLST", "MLSD",
			} {
				_, r := c.execute(command+" "+name, "x")
				c.check(command+" "+name, r, "553 *: that name is reserved")
			}
			c.want("RNFR /free", "350 *")
			c.want("RNTO "+name, "553 *: that name is reserved")
		}
		for _, command := range []string{"LIST -a /", "MLSD /", "LIST -a /locks", "NLST /locks/.*", "NLST /.ftp*"} {
			if got := c.fetch(command); strings.Contains(got, "ftplockd") {
				t.Errorf("%s: %q", command, got)
			}
		}
	})
}
