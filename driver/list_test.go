package driver

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/afero"
)

// bare returns the names in a listing.
func bare(listing string) string {
	var names []string
	for l := range strings.SplitSeq(strings.TrimSuffix(listing, "\r\n"), "\r\n") {
		if fields := strings.Fields(l); len(fields) > 8 {
			names = append(names, strings.Join(fields[8:], " "))
		} else if l != "" {
			names = append(names, l)
		}
	}
	return strings.Join(names, " ")
}

func TestListings(t *testing.T) {
	inBothWires(t, func(t *testing.T, s *server) {
		for _, f := range []string{"/d/b", "/d/a", "/d/.hidden", "/d/sub/x", "/d/sub/y", "/d/sab/x", "/d/-al", "/d/c[1]"} {
			s.write(f, "x")
		}
		s.mkdir("/empty")
		s.link("a", "/d/link")
		s.link("sub", "/d/sublink") // a link to a directory has its target behind its name in the long form
		s.link("/nowhere", "/d/broken")
		c := s.as("phoneacc")
		c.want("CWD /d", "250 *")
		for _, tt := range []struct{ command, names string }{
			{"LIST", "-al a b broken c[1] link sab sub sublink -> sub"},
			{"LIST -a", "-al .hidden a b broken c[1] link sab sub sublink -> sub"},
			{"LIST -CF", "-al a b broken c[1] link sab/ sub/ sublink -> sub"},
			{"LIST -la /d/sub", "x y"},
			{"LIST -a -l sub", "x y"},
			{"LIST   sub", "x y"},
			{"LIST sublink", "x y"},
			{"LIST -d sub", "sub"},
			{"LIST -d", "."},
			{"LIST -d sublink", "sublink -> sub"},
			{"LIST -d sublink/", "sublink/"},
			{"LIST a", "a"},
			{"LIST -al", "-al .hidden a b broken c[1] link sab sub sublink -> sub"}, // although there is a file of that name
			{"LIST -- -al", "-al"},
			{"NLST -al", "-al"}, // mdelete removes what this lists
			{"LIST /d/b", "/d/b"},
			{"LIST *", "-al a b broken c[1] link sab sub sublink -> sub"},
			{"LIST s?b", "sab sub"},
			{"LIST /empty", ""},
			{"NLST", "-al a b broken c[1] link sab sub sublink"},
			{"NLST .", "-al a b broken c[1] link sab sub sublink"},
			{"NLST .*", ".hidden"},
			{"NLST c[1]", "c[1]"}, // the file of that name comes before the pattern
			{"NLST [ab]", "a b"},
			// RFC 1123 section 4.1.2.7: a client can send each name with RETR
			{"NLST sub", "sub/x sub/y"},
			{"NLST /d/sub", "/d/sub/x /d/sub/y"},
			{"NLST ../d/sub", "../d/sub/x ../d/sub/y"},
			{"NLST sub/..", "sub/../-al sub/../a sub/../b sub/../broken sub/../c[1] sub/../link sub/../sab sub/../sub sub/../sublink"},
			{"NLST /d/s*b", "/d/sab /d/sub"},
			{"NLST sub/*", "sub/x sub/y"},
			{"NLST /d/sublink/[x-z]", "/d/sublink/x /d/sublink/y"},
			{"LIST -r sub", "y x"},
			{"NLST /e*", "/empty /ever"},
			{"NLST nothing*", ""},
			{"NLST /empty", ""},
		} {
			if got := bare(c.fetch(tt.command)); got != tt.names {
				t.Errorf("%s:\n got %q\nwant %q", tt.command, got, tt.names)
			}
		}
		// MLSD of a file is a wrong argument: RFC 3659 section 7.2.1.
		c.play(`
			LIST none => 550 /d/none: no such file or directory
			LIST c[1 => 550 /d/c[1: no such file or directory
			NLST none => 550 /d/none: no such file or directory
			LIST a/b => 550 /d/a/b: a path component is not a directory
			NLST /none/* => 550 /none/*: no such file or directory
			NLST s*/x => 550 /d/s*/x: no such file or directory
			MLSD none => 550 /d/none: no such file or directory
			MLSD a => 501 /d/a: is not a directory
			MLSD * => 550 /d/*: no such file or directory
			LIST broken/x => 550 *
			NLST / => 226 * >>> /d\r\n/empty\r\n*`)
	})
}

func TestListingsOfNamesWithBlanksDashesAndBrackets(t *testing.T) {
	inBothWires(t, func(t *testing.T, s *server) {
		for _, f := range []string{"/d/ lead", "/d/  two  ", "/d/ dir/f", "/d/-al/f", "/d/a[1]/f", "/d/a1/g", "/d/*/h", "/d/sub/i"} {
			s.write(f, "x")
		}
		c := s.as("phoneacc")
		c.want("CWD /d", "250 *")
		for command, want := range map[string]string{
			"NLST  lead": " lead\r\n", "NLST   two  ": "  two  \r\n", "NLST  dir": " dir/f\r\n", "NLST  dir/*": " dir/f\r\n", "NLST -a  dir": " dir/f\r\n",
			"NLST  sub": "sub/i\r\n", "NLST  sub/*": "sub/i\r\n", "NLST -a   sub": "sub/i\r\n", "NLST -al/*": "-al/f\r\n", "NLST -- -al/*": "-al/f\r\n",
			"NLST a[1]/*": "a[1]/f\r\n", "NLST a[1]": "a[1]/f\r\n", "NLST */*": "*/h\r\n", "NLST */h": "*/h\r\n",
		} {
			if got := c.fetch(command); got != want {
				t.Errorf("%s: %q, want %q", command, got, want)
			}
		}
		for command, want := range map[string]string{"LIST  lead": " lead\r\n", "LIST -l   two  ": "   two  \r\n", "LIST -al  dir": " f\r\n", "LIST  dir/f": "  dir/f\r\n"} {
			if got := c.fetch(command); strings.Count(got, "\n") != 1 || !strings.HasSuffix(got, want) {
				t.Errorf("%s: %q, want %q", command, got, want)
			}
		}
	})
}

// A program that removes a directory with its content removes what it finds in directories, and sends DELE for links.
func TestALinkToADirectoryIsListedAsALink(t *testing.T) {
	const all = "lrwxrwxrwx * climbs\\r\\nlrwxrwxrwx * host\\r\\nlrwxrwxrwx * lost -> none\\r\\nlrwxrwxrwx * uploads -> ../shared\\r\\n-rw-r--r-- * x\\r\\n"
	plays(t, `
		- write /shared/photo 123
		- mkdir /www
		- link /www/uploads ../shared
		- link /www/x ../shared/photo
		- link /www/lost none
		- link /www/host /etc
		- link /www/climbs ../../etc
		a LIST /www => 226 * >>> `+all+`
		a STAT /www => 213-*\n lrwxrwxrwx * uploads -> ../shared\n*
		a MLSD /www => 226 * >>> *type=OS.unix=symlink;modify=#;unique=*;unix.mode=0777; uploads\r\ntype=file;size=3;*; x\r\n
		a LIST -d /www/uploads => 226 * >>> lrwxrwxrwx * /www/uploads -> ../shared\r\n
		# the path of a link leads to its target
		a NLST /www/uploads => 226 * >>> /www/uploads/photo\r\n
		a MLST /www/uploads => 250-*\n type=dir;*\n*
		a CWD /www/uploads => 250 *
		a LIST => 226 * >>> -rw-r--r-- * photo\r\n
		a RMD /www/uploads => 550 /www/uploads: is a link: DELE removes it, and not its target
		a DELE /www/uploads => 250 *
		a CWD /www/uploads => 550 *
		- file /shared/photo 123`)
	s := start(t)
	s.write("/home/bob/work/a", "x")
	s.link("../..", "/home/bob/work/up") // leads above the home of the account
	if got := s.as("bob").fetch("LIST -d up"); !strings.HasSuffix(got, " up\r\n") {
		t.Errorf("%q", got)
	}
}

func TestListingsInOrder(t *testing.T) {
	s := start(t)
	s.driver.bounds.ordered = 4
	s.play(t, `
		- write /d/b xxx
		- write /d/a xx
		- write /d/c x
		a MFMT 20260101000000 /d/b => 213 *
		a MFMT 20260102000000 /d/a => 213 *
		a MFMT 20260103000000 /d/c => 213 *
		a NLST -r /d => 226 * >>> /d/c\r\n/d/b\r\n/d/a\r\n
		a NLST -t /d => 226 * >>> /d/c\r\n/d/a\r\n/d/b\r\n
		a LIST -lrt /d => 226 * >>> -* b\r\n-* a\r\n-* c\r\n
		a LIST -S /d => 226 * >>> -* b\r\n-* a\r\n-* c\r\n
		a NLST -Sr /d => 226 * >>> /d/c\r\n/d/a\r\n/d/b\r\n
		- write /d/d x
		a NLST -t /d => 550 /d: has too many names for -t, -S and -r: list it without them
		a NLST /d => 226 * >>> /d/a\r\n/d/b\r\n/d/c\r\n/d/d\r\n`)
}

// exhausted is a tree whose Open fails after left calls, as with too many open files. It cannot describe files named cut.
type exhausted struct {
	Tree
	left int
}

func (e *exhausted) Open(name string) (afero.File, error) {
	if e.left--; e.left < 0 {
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.EMFILE}
	}
	return e.Tree.Open(name)
}

func (e *exhausted) Lstat(name string) (fs.FileInfo, error) {
	if path.Base(name) == "cut" {
		return nil, &fs.PathError{Op: "lstat", Path: name, Err: syscall.EIO}
	}
	return e.Tree.Lstat(name)
}

// A mirror would remove the files that a listing lacks.
func TestAListingThatFailsIsNotEmpty(t *testing.T) {
	s := start(t)
	s.write("/d/f", "x")
	s.mkdir("/d/cut")
	c := s.as("phoneacc")
	tree := s.driver.tree
	c.want("MKD /locks/a", "257 *")
	for command, left := range map[string]int{"LIST /d": 0, "NLST /d": 0, "MLSD /d": 0, "NLST /d/*": 0, "LIST /d/cut": 9, "NLST /locks/a": 0} {
		s.driver.tree = &exhausted{tree, left}
		_, r := c.execute(command, "")
		c.check(command, r, "451 *")
	}
}

// vanishing is a tree from which a program on the host removes a file when a listing describes it.
type vanishing struct {
	Tree
	file string // on the host
}

func (v vanishing) Open(name string) (afero.File, error) {
	f, err := v.Tree.Open(name)
	return vanishingIn{f, v.file}, err
}

type vanishingIn struct {
	afero.File
	file string
}

func (v vanishingIn) Lstat(base string) (fs.FileInfo, error) {
	_ = os.Remove(v.file)
	return v.File.(interface {
		Lstat(base string) (fs.FileInfo, error)
	}).Lstat(base)
}

func TestAListingOmitsAFileThatIsRemovedMeanwhile(t *testing.T) {
	for _, command := range []string{"LIST /d", "MLSD /d", "NLST -t /d"} {
		s := start(t)
		s.write("/d/gone", "x")
		s.write("/d/stays", "x")
		s.driver.tree = vanishing{s.driver.tree, filepath.Join(s.root, "d/gone")}
		if got := s.as("phoneacc").fetch(command); strings.Contains(got, "gone") || !strings.HasSuffix(got, "stays\r\n") {
			t.Errorf("%s: %q", command, got)
		}
	}
}

func TestFormatsOfListings(t *testing.T) {
	plays(t, `
		- write /d/f 12345
		- mkdir /d/sub
		# the clock is at 2026-01-01
		boss MFMT 20251231230000 /d/f => 213 *
		boss LIST /d/f* => 226 * >>> -rw-r--r--    1 ftp      ftp                 5 Dec 31 23:00 /d/f\r\n
		boss MFMT 20200102030405 /d/f => 213 *
		boss LIST /d => 226 * >>> -rw-r--r--    1 ftp      ftp                 5 Jan  2  2020 f\r\n* sub\r\n
		boss STAT /d/f => 213-Status of /d/f:\n -rw-r--r-- * /d/f\n213 End of status
		boss STAT -a /d/n* => 213-Status of /d/n*:\n213 End of status
		boss STAT /none => 550 /none: no such file or directory
		# RFC 3659 section 7: PHP programs look for "type" in lower case
		boss MLSD /d => 226 * >>> type=file;size=5;modify=20200102030405;unique=*;unix.mode=0644; f\r\ntype=dir;modify=#;unique=*;unix.mode=0755; sub\r\n
		boss OPTS MLST Size;TYPE;nonsense; => 200 MLST OPTS type;size;
		boss MLST /d/f => 250-facts of /d/f\n type=file;size=5; /d/f\n250 End
		boss OPTS MLST => 200 MLST OPTS
		boss MLST d => 250-*\n  /d\n250 *
		boss MLST => 250-*\n  /\n250 *
		boss MLST /none => 550 /none: *
		boss FEAT => *\n MLST type;size;modify;unique;unix.mode;\n*
		boss FEAT => *\n SITE LOCK\n SITE LOCK DISCONNECT\n SITE LOCK FACTS type;token;*\n SITE LOCKS\n SITE WAIT\n SIZE\n STOR STAGED\n*`)
}

func TestSizesTimesAndDigests(t *testing.T) {
	plays(t, `
		- write /f hello\n
		- mkdir /d
		a SIZE /f => 213 6
		a SIZE /d => 550 /d: is a directory
		a SIZE /none => 550 /none: no such file or directory
		a MDTM /d => 213 #
		a MDTM /none => 550 *
		a MFMT 20200102030405 /d => 213 *
		a MFMT 2020 /f => 501 *
		a MFMT 20200102030405 => 501 *
		# times that the server cannot store: they would become others, or none (the zero time of Go)
		a MFMT 00010101000000 /f => 501 *
		a MFMT 18991231000000 /f => 501 *
		a MFMT 22630101000000 /f => 501 *
		a MFMT 99991231235959 /f => 501 *
		a MDTM 00010101000000 /f => 550 *
		a MFMT 20200102030405 /none => 550 *
		a XCRC /f => 250 363a3020
		a XMD5 "/f" => 250 b1946ac92492d2347c6235b4d2611184
		a XSHA256 f => 250 5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03
		a XMD5 "/f" 0 6 => 250 b1946ac92492d2347c6235b4d2611184
		a XMD5 "/f" 0 5 => 250 5d41402abc4b2a76b9719d911017c592
		a XMD5 f 0 5 => 250 5d41402abc4b2a76b9719d911017c592
		a XCRC f 0 => 250 363a3020
		a XCRC f 6 => 250 00000000
		a XCRC f 0 7 => 501 /f: the range does not lie in the file
		a XCRC f 7 => 501 *
		a XCRC f 5 4 => 501 *
		a XCRC f -1 4 => 550 *
		- write /f_1_2 one
		a RNFR /f_1_2 => 350 *
		a RNTO /f 1 2 => 250 *
		a XMD5 f 1 2 => 250 f97c5d29941bfb1b2fdab0874906ab82
		a XMD5 "f" 0 5 => 250 5d41402abc4b2a76b9719d911017c592
		a HASH f => 213 SHA-256 0-6 5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03 f
		a OPTS HASH md5 => 200 MD5
		a OPTS HASH CRC64 => 501 *
		a HASH /f => 213 MD5 0-6 b1946ac92492d2347c6235b4d2611184 /f
		a HASH /d => 553 *
		a HASH /none => 550 *
		a AVBL => 213 #
		a AVBL /d => 213 #
		a AVBL /f => 550 *
		a AVBL /none => 550 *
		# a name that begins with a time
		a STOR 20260101000000 r <<< x => 226 *
		a STOR r <<< x => 226 *
		a MDTM 20200202020202 r => 213 *
		a MDTM 20260101000000 r => 213 *
		a MDTM r => 213 20200202020202`)
	c := start(t).as("phoneacc")
	c.store("/f", "x")
	modify := c.ask("MFMT 22601231235959 /f") // a file system has its own range of times
	if has := strings.TrimPrefix(c.ask("MDTM /f"), "213 "); !strings.HasPrefix(modify, "213 Modify="+has+"; ") {
		t.Errorf("%q, but MDTM returns %q", modify, has)
	}
}

func TestTheStatusFileListsTheLocks(t *testing.T) {
	const no = "550 /.locks.json: is served by the server itself and cannot be changed"
	inBothModes(t, `
		- write /f x
		a TYPE I => 200 *
		a RETR /.locks.json => 226 * >>> {\n  "now": "*",\n  "locks": []\n}\n
		a MKD /locks/a => 257 *
		a MKD /ever/x => 257 *
		a RETR .locks.json => 226 * >>> *"name": "/ever/x",*"expires": null*"name": "/locks/a",\n      "holder": "phoneacc",\n      "address": "127.0.0.1",\n      "session": "#-#",\n      "token": #,\n      "acquired": "*Z",\n      "age_seconds": *,\n      "expires": "*Z"*
		a REST 1 => 350 *
		a RETR /.locks.json => 554 /.locks.json: generated on each read: send no REST
		a SIZE /.locks.json => 504 /.locks.json: generated on each read: *
		a MDTM /.locks.json => 213 #
		a MLST /.locks.json => 250-*\n type=file;*; /.locks.json\n250 *
		a CWD /.locks.json => 550 /.locks.json: is not a directory
		a DELE /.locks.json => `+no+`
		a RMD /.locks.json => `+no+`
		a RNFR /.locks.json => `+no+`
		a MFMT 20200101000000 /.locks.json => `+no+`
		a RNFR /f => 350 *
		a RNTO /.locks.json => `+no+`
		a STOR /.locks.json <<< x => `+no+`
		- write /.locks.json shadowed
		a NLST -a => 226 * >>> ever\r\nf\r\ngone\r\nhome\r\nlocks\r\nopen\r\n
		a LIST .locks.json => 226 * >>> -r--r--r--* .locks.json\r\n`)
	plays(t, `
		a RETR /.locks.json => 550 *: no such file or directory
		a STOR /.locks.json <<< an ordinary file => 226 *`, func(o *setup) { o.settings.FTP.StatusFile = "" })
}

func TestSite(t *testing.T) {
	inBothModes(t, `
		- write /f x
		a SITE => 501 *
		a SITE HELP => 214-SITE commands:\n*\n214 End
		a SITE NONE => 500 *
		a SITE LOCKS => 211 no locks are held
		a SITE LOCK AGE 60 => 200 *
		a MKD /locks/short => 257 "/locks/short" locked, token #, expires in 1m0s
		a SITE LOCK AGE 7200 => 200 *
		a MKD /locks/long => 257 "/locks/long" locked, token #, expires in 6m0s
		a RMD /locks/long => 250 *
		a SITE LOCK AGE 0 => 200 *
		a SITE LOCK AGE -1 => 501 *
		a SITE LOCK AGE x => 501 *
		a MKD /locks/long => 257 "/locks/long" locked, token #, expires in 6m0s
		a MKD /ever/x => 257 *
		a site lock info /ever/x => 211-Lock /ever/x\n held by phoneacc@127.0.0.1 for 0s, never expires, token #\n type=lock;token=#;account=phoneacc;address=127.0.0.1;since=*;held=0.000;shared=no;automatic=no;mine=session;waiting=0;mkd=later; /ever/x\n211 End
		a2 SITE LOCK INFO /locks/long => 211-*\n type=lock;*;expires=2*;left=360.000;longest=360.000;age=360.000;shared=no;automatic=no;mine=no;waiting=0;mkd=later; /locks/long\n211 End
		a SITE LOCK INFO /locks/none => 211-Lock /locks/none\n not held\n type=free;waiting=0;mkd=granted; /locks/none\n211 End
		a SITE LOCK INFO /nolock => 550 /nolock: no rule makes that name a lock; /nolock_lock would be one
		a SITE LOCK DISCONNECT KEEP => 501 *
		a SITE LOCK DISCONNECT RELEASE x => 501 *
		a SITE LOCK DISCONNECT RELEASE 15 => 200 *
		a SITE LOCKS => 211-3 locks are held:\n /ever/x: held by *\n type=lock;*; /ever/x\n /locks/long: held by *; /locks/long\n /locks/short: held by *; /locks/short\n211 End
		a SITE LOCKS /locks/s* => 211-1 locks are held:\n /locks/short: held by *\n type=lock;*; /locks/short\n211 End
		a SITE LOCKS **/long => 211-1 *
		a SITE LOCKS /*/[rs]hort => 211-1 *
		a SITE LOCKS /locks => 211 no locks are held
		a SITE LOCKS [ => 501 *
		a SITE LOCKS /{*,?}{*,?} => 501 a pattern here has *, **, ? and [a-z], and no braces
		a SITE LOCK => 501 *
		a SITE LOCK NONE x => 501 *
		a SITE LOCK AS => 501 *
		- late 50s
		a SITE LOCK RENEW /locks/short => 200 "/locks/short" locked, token #, expires in 1m0s
		- pass 50s
		- held /locks/short
		a2 SITE LOCK RENEW /locks/short => 550 /locks/short: not yours: *
		a SITE LOCK RENEW /locks/none => 550 /locks/none: not held
		# the same job on another connection
		a2 RMD /locks/long => 550 /locks/long: not yours: *
		a2 SITE LOCK AS job 1 => 501 *
		a2 SITE LOCK AS job-1 => 200 *
		a SITE LOCK AS job-1 => 200 *
		a MKD /locks/job => 257 *
		a2 SITE LOCK INFO /locks/job => 211-*;mine=job;waiting=0;mkd=granted; /locks/job\n211 End
		a2 MKD /locks/job => 257 "/locks/job" locked, *
		a2 SITE LOCK INFO /locks/job => 211-*;mine=session;adopted=#;waiting=0;mkd=later; /locks/job\n211 End
		a2 RMD /locks/job => 250 *
		a2 SITE LOCK BREAK /locks/long => 550 only administrators break locks
		- break /locks/long
		boss SITE LOCK BREAK 1 /locks/long => 550 /locks/long: not held
		boss SITE CHMOD 600 => 501 *
		boss SITE CHMOD => 501 *
		boss SITE CHMOD 1777 /f => 501 *
		boss SITE CHMOD 9 /f => 501 *
		boss SITE CHMOD 600 /f => 200 *
		boss MLST /f => 250-*\n *unix.mode=0600; /f\n250 *
		boss SITE CHMOD 600 /none => 550 /none: *
		a SITE CHMOD 644 /f => 550 /f: this account may not change modes`)
}

func TestTheWorkOfAGlobIsBounded(t *testing.T) {
	s := start(t)
	a := s.as("phoneacc")
	a.want("MKD /locks/a", "257 *")
	a.want("SITE LOCKS /"+strings.Repeat("*a", 150), "501 a pattern has at most 256 bytes")
	s.driver.bounds.glob = 0
	a.want("SITE LOCKS "+strings.Repeat("**/*a*a*b/", 20)+"x", "550 too much work for a pattern: shorten it")
}

func TestListsOfLocksAreBounded(t *testing.T) {
	s := start(t)
	s.driver.bounds.locks = 1
	s.play(t, `
		a MKD /locks/1 => 257 *
		a MKD /locks/2 => 257 *
		a MKD /locks/3 => 257 *
		a SITE LOCKS => 211-3 locks are held:\n /locks/1: *; /locks/1\n and 2 more\n211 End
		a RETR /.locks.json => 226 * >>> {*"name": "/locks/1",*\n  ],\n  "more": 2\n}\n`)
}
