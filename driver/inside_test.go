package driver

import (
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// leftovers are the files that lie in what was moved aside: "lock file content", in no order that matters.
func (s *server) leftovers() string {
	s.t.Helper()
	top := filepath.Join(s.root, ".ftplockd-leftovers")
	var found []string
	err := filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(top, p)
		dir, file, _ := strings.Cut(rel, "/")
		of, _ := url.PathUnescape(dir[strings.LastIndexByte(dir, ',')+1:])
		content, err := os.ReadFile(p)
		found = append(found, of+" "+file+" "+string(content))
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		s.t.Error(err)
	}
	return strings.Join(found, "\n")
}

func (s *server) wantLeftovers(want string) {
	s.t.Helper()
	if got := s.leftovers(); got != want {
		s.t.Errorf("left over:\n%s\nwant:\n%s", got, want)
	}
}

// wantNothingHidden checks that no hidden directory of a lock is left, and no record of one.
func (s *server) wantNothingHidden() {
	s.t.Helper()
	_ = filepath.WalkDir(s.root, func(p string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(d.Name(), ".ftplockd-lock-") {
			s.t.Errorf("%s is left", p)
		}
		return nil
	})
	if left := onDisk(s.t, filepath.Join(s.state, "inside")); len(left) > 0 {
		s.t.Errorf("records are left: %q", left)
	}
}

// job is a client that speaks for the locks of others of its kind.
func (s *server) job(account string) *conn {
	s.t.Helper()
	c := s.as(account)
	c.want("SITE LOCK AS job", "200 *")
	return c
}

// refuses has a client try everything that changes something in a lock in which are f and the directory dir.
func (c *conn) refuses(in, why string) {
	c.t.Helper()
	c.server.write("/free", "free")
	for _, command := range []string{"STOR " + in + "/f", "STOR " + in + "/new", "APPE " + in + "/f", "STOU " + in + "/f", "STOU " + in, "STOR " + in + "/dir/f"} {
		c.check(command, c.upload(command, "stranger"), "550 *: "+why)
	}
	for _, command := range []string{
		"DELE " + in + "/f", "RNFR " + in + "/f", "RNFR " + in + "/dir", "MKD " + in + "/new", "RMD " + in + "/dir",
		"MFMT 20200101000000 " + in + "/f", "MFMT 20200101000000 " + in + "/dir", "SITE CHMOD 700 " + in + "/f", "SITE CHMOD 700 " + in + "/dir",
	} {
		c.want(command, "550 *: "+why)
	}
	c.want("RNFR /free", "350 *")
	c.want("RNTO "+in+"/new", "550 *: "+why)
	if got := c.server.content("/free"); got != "free" {
		c.t.Errorf("/free holds %q", got)
	}
}

func TestTheHolderUsesItsLockAsADirectory(t *testing.T) {
	inEachMode(t, func(t *testing.T, s *server, dial func(string) *conn) {
		c := dial("boss")
		c.play(`
			C: TYPE I
			S: 200 *
			C: MKD /a_lock
			S: 257 *
			C: SIZE /a_lock/f
			S: 550 /a_lock/f: no such file or directory`)
		if got := c.fetch("LIST /a_lock"); got != "" {
			t.Errorf("a new lock holds %q", got)
		}
		big := strings.Repeat("0123456789", 100_000)
		c.store("/a_lock/big", big)
		c.store("/a_lock/f", "abc")
		c.check("APPE", c.upload("APPE /a_lock/f", "def"), "226 *")
		c.want("REST 4", "350 *")
		c.check("STOR", c.upload("STOR /a_lock/f", "XYZ"), "226 *")
		if got := c.fetch("RETR /a_lock/f"); got != "abcdXYZ" {
			t.Errorf("fetched %q", got)
		}
		c.want("REST 5", "350 *")
		if got := c.fetch("RETR /a_lock/f"); got != "YZ" {
			t.Errorf("the rest is %q", got)
		}
		if got := c.fetch("RETR /a_lock/big"); got != big {
			t.Errorf("%d bytes came back", len(got))
		}
		c.play(`
			C: SIZE /a_lock/f
			S: 213 7
			C: MFMT 20200102030405 /a_lock/f
			S: 213 Modify=20200102030405; /a_lock/f
			C: MDTM /a_lock/f
			S: 213 20200102030405
			C: SITE CHMOD 640 /a_lock/f
			S: 200 /a_lock/f has mode 640
			C: MLST /a_lock/f
			S: 250-*
			S:  type=file;size=7;modify=20200102030405;*unix.mode=0640; /a_lock/f
			S: 250 *
			C: XCRC /a_lock/f
			S: 250 *
			C: CWD /a_lock
			S: 250 *
			C: PWD
			S: 257 "/a_lock" is the current directory
			C: ALLO 3
			S: 200 *
			C: AVBL
			S: 213 #
			C: MKD dir
			S: 257 "/a_lock/dir" created
			C: MKD dir/sub
			S: 257 "/a_lock/dir/sub" created
			C: CWD dir/sub
			S: 250 /a_lock/dir/sub is the current directory`)
		c.store("deep", "deep")
		if got := c.fetch("RETR /a_lock/dir/sub/deep"); got != "deep" {
			t.Errorf("below, there is %q", got)
		}
		if got := c.fetch("NLST /a_lock"); got != "/a_lock/big\r\n/a_lock/dir\r\n/a_lock/f\r\n" {
			t.Errorf("NLST: %q", got)
		}
		if got := c.fetch("NLST /a_lock/d*/s*"); got != "/a_lock/dir/sub/deep\r\n" && got != "/a_lock/dir/sub\r\n" {
			t.Errorf("NLST with a pattern: %q", got)
		}
		if got := c.fetch("LIST /a_lock"); !fits("-* 1000000 * big\r\nd* dir\r\n-rw-r-----* 7 * f\r\n", got) {
			t.Errorf("LIST: %q", got)
		}
		if got := c.fetch("MLSD /a_lock"); !fits("type=file;size=1000000;*; big\r\ntype=dir;*; dir\r\ntype=file;size=7;*; f\r\n", got) {
			t.Errorf("MLSD: %q", got)
		}
		c.play(`
			C: RNFR /a_lock/f
			S: 350 *
			C: RNTO /a_lock/dir/g
			S: 250 *
			C: RNFR /a_lock/dir
			S: 350 *
			C: RNTO /a_lock/moved
			S: 250 *
			C: SIZE /a_lock/moved/g
			S: 213 7
			C: SIZE /a_lock/f
			S: 550 *
			C: RMD /a_lock/moved
			S: 550 /a_lock/moved: the directory is not empty
			C: CWD /
			S: 250 *
			C: RMD /a_lock
			S: 550 /a_lock: the directory is not empty: remove what is in it first
			C: DELE /a_lock/moved/g
			S: 250 *
			C: DELE /a_lock/moved/sub/deep
			S: 250 *
			C: RMD /a_lock/moved/sub
			S: 250 *
			C: RMD /a_lock/moved
			S: 250 *
			C: RMD /a_lock
			S: 550 /a_lock: the directory is not empty: *
			C: DELE /a_lock/big
			S: 250 *
			C: RMD /a_lock
			S: 250 /a_lock released
			C: MKD /a_lock
			S: 257 *`)
		if got := c.fetch("LIST /a_lock"); got != "" {
			t.Errorf("the next hold has %q", got)
		}
		c.want("RMD /a_lock", "250 *")
		s.wantNothingHidden()
		s.wantLeftovers("")
	})
}

func TestOthersLookIntoALockAndChangeNothing(t *testing.T) {
	inEachMode(t, func(t *testing.T, s *server, dial func(string) *conn) {
		a, b := dial("phoneacc"), dial("boss") // who is an administrator, which counts for nothing here
		a.want("MKD /open/a", "257 *")
		a.want("MKD /x_lock", "257 *")
		for _, in := range []string{"/open/a", "/x_lock"} {
			a.store(in+"/f", "x")
		}
		a.want("MKD /x_lock/dir", "257 *")
		b.want("CWD /open/a", "250 *")
		if got := b.fetch("RETR f"); got != "x" {
			t.Errorf("RETR: %q", got)
		}
		if got := b.fetch("NLST"); got != "f\r\n" {
			t.Errorf("NLST: %q", got)
		}
		b.want("SIZE f", "213 1")
		b.want("MDTM f", "213 *")
		b.want("CWD /", "250 *")
		b.want("CWD /x_lock", "550 /x_lock: held by phoneacc@*") // allow_cwd = false
		b.refuses("/x_lock", "lies in the lock /x_lock, which you do not hold")
		for _, command := range []string{"STOR /open/a/f", "APPE /open/a/new"} {
			b.check(command, b.upload(command, "y"), "550 *: lies in the lock /open/a, which you do not hold")
		}
		b.want("RMD /x_lock", "550 /x_lock: not yours: *")
		if got := a.fetch("NLST /x_lock") + a.fetch("RETR /x_lock/f"); got != "/x_lock/dir\r\n/x_lock/f\r\nx" {
			t.Errorf("in the lock: %q", got)
		}
		if got := a.fetch("RETR /open/a/f"); got != "x" {
			t.Errorf("in the lock: %q", got)
		}
	})
}

func TestAnAccountThatMayNotWriteDoesNotInItsLockEither(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *server) {
		s.write("/free", "x")
		c := s.as("reader")
		c.want("MKD /a_lock", "257 *")
		for _, command := range []string{"STOR /a_lock/f", "APPE /a_lock/f", "STOU /a_lock"} {
			c.check(command, c.upload(command, "x"), "550 *: this account may not change files")
		}
		c.want("MKD /a_lock/dir", "550 *: this account may not change files")
		c.want("RNFR /free", "550 *: this account may not change files")
		if got := c.fetch("NLST /a_lock"); got != "" {
			t.Errorf("in the lock: %q", got)
		}
		c.want("RMD /a_lock", "250 *")
		s.wantNothingHidden()
	})
}

func TestAFileIsPublishedOutOfALockByOneRename(t *testing.T) {
	inEachMode(t, func(t *testing.T, s *server, dial func(string) *conn) {
		s.write("/pub/index", "old")
		c, b := dial("phoneacc"), dial("other")
		c.want("MKD /pub/.x_lock", "257 *")
		c.store("/pub/.x_lock/index", "new")
		if got := b.fetch("RETR /pub/index"); got != "old" {
			t.Errorf("before: %q", got)
		}
		b.want("RNFR /pub/.x_lock/index", "550 *: lies in the lock /pub/.x_lock, which you do not hold")
		c.want("RNFR /pub/.x_lock/index", "350 *")
		c.want("RNTO /pub/index", "250 *")
		if got := b.fetch("RETR /pub/index"); got != "new" {
			t.Errorf("after: %q", got)
		}
		c.play(`
			C: SIZE /pub/.x_lock/index
			S: 550 *
			C: RNFR /pub/index
			S: 350 *
			C: RNTO /pub/.x_lock/back
			S: 250 *
			C: MKD /pub/.x_lock/tree
			S: 257 *
			C: RNFR /pub/.x_lock/tree
			S: 350 *
			C: RNTO /pub/tree
			S: 250 *
			C: RNFR /pub/tree
			S: 350 *
			C: RNTO /pub/.x_lock/tree
			S: 250 *
			C: RMD /pub/.x_lock/tree
			S: 250 *
			C: RNFR /pub/.x_lock/back
			S: 350 *
			C: RNTO /pub/index
			S: 250 *
			C: RMD /pub/.x_lock
			S: 250 *`)
		s.wantContent("/pub/index", "new")
	})
}

func TestARenameOutOfALockAsksWhatProtectsTheTarget(t *testing.T) {
	for name, mode := range map[string]func(*setup){"directories": func(*setup) {}, "no directories": plainLocks} {
		t.Run(name, func(t *testing.T) {
			s, published := startProtected(t, protected, mode)
			s.write("/phone.tsv", "old")
			s.write("/other.tsv", "old")
			c := s.as("phoneacc")
			c.want("MKD /phone_lock", "257 *")
			c.store("/phone_lock/new", "new")
			c.want("RNFR /phone_lock/new", "350 *")
			c.want("RNTO /other.tsv", "550 /other.tsv: protected by the lock /other_lock, which you do not hold")
			c.want("RNFR /phone_lock/new", "350 *")
			c.want("RNTO /phone.tsv", "250 *")
			if got := published.lines(); !fits("/phone_lock # phoneacc /phone.tsv 0  renamed from /phone_lock/new", got) {
				t.Errorf("published: %q", got)
			}
			c.store("/phone_lock/late", "late")
			s.pass(7 * time.Minute)
			c.want("RNFR /phone_lock/late", "550 *")
			c.want("MKD /other_lock", "257 *")
			c.store("/other_lock/new", "new")
			c.want("RNFR /other_lock/new", "350 *")
			s.clock.Advance(7 * time.Minute) // nobody has ended it yet
			c.want("RNTO /other.tsv", "550 *: * the lock /other_lock, taken away *")
			s.pass(0)
			if got := s.content("/phone.tsv") + s.content("/other.tsv"); got != "newold" {
				t.Errorf("the files hold %q", got)
			}
		})
	}
}

func TestAnUploadIsDiscardedIfItsLockIsLostMeanwhile(t *testing.T) {
	for how, lose := range map[string]func(s *server) string{
		"age": func(s *server) string { s.pass(7 * time.Minute); return "older than 6m0s" },
		"break": func(s *server) string {
			s.as("boss").breaks("/a_lock")
			return "broken by boss@*"
		},
	} {
		t.Run(how, func(t *testing.T) {
			inBothModes(t, func(t *testing.T, s *server) {
				a, b := s.as("phoneacc"), s.as("other")
				a.want("MKD /a_lock", "257 *")
				a.store("/a_lock/f", "first")
				d := a.data()
				a.want("STOR /a_lock/f", "150 *")
				if _, err := d.Write([]byte("unfinished")); err != nil {
					t.Fatal(err)
				}
				why := lose(s)
				b.want("MKD /a_lock", "257 *")
				if got := b.fetch("NLST /a_lock"); got != "" {
					t.Errorf("the next holder finds %q", got)
				}
				b.store("/a_lock/f", "next")
				d.Close()
				a.check("STOR", a.reply(), "550 /a_lock/f: lies in the lock /a_lock, taken away #s ago: "+why)
				if got := b.fetch("NLST /a_lock") + b.fetch("RETR /a_lock/f"); got != "/a_lock/f\r\nnext" {
					t.Errorf("in the lock: %q", got)
				}
				s.wantLeftovers("/a_lock f first")
				b.want("DELE /a_lock/f", "250 *")
				b.want("RMD /a_lock", "250 *")
				s.wantNothingHidden()
			})
		})
	}
}

// An upload that begins before the lock is taken does not get into it.
func TestAnUploadThatBeganBeforeALockDoesNotGetIntoIt(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *server) {
		a, b := s.as("phoneacc"), s.as("other")
		a.want("MKD /a_lock", "257 *")
		d := a.data()
		a.want("STOR /a_lock/f", "150 *")
		// Somebody else of the same job cannot give it back while something is on its way into it, or the upload fails.
		given := strings.HasPrefix(a.server.job("phoneacc").ask("RMD /a_lock"), "250 ")
		s.pass(7 * time.Minute)
		b.want("MKD /a_lock", "257 *")
		d.Close()
		a.check("STOR", a.reply(), "550 /a_lock/f: lies in the lock /a_lock, *")
		if given {
			t.Error("it was given back")
		}
		if got := b.fetch("NLST /a_lock"); got != "" {
			t.Errorf("in the lock: %q", got)
		}
	})
}

func TestWhatIsLeftInALockIsMovedAsideAndTheNextHolderFindsItEmpty(t *testing.T) {
	for how, end := range map[string]func(s *server, a *conn){
		"age":        func(s *server, _ *conn) { s.pass(7 * time.Minute) },
		"break":      func(s *server, _ *conn) { s.as("boss").breaks("/gone/a") },
		"disconnect": func(s *server, a *conn) { a.Close(); s.until("it is gone", func() bool { return !s.held("/gone/a") }) },
	} {
		t.Run(how, func(t *testing.T) {
			inBothModes(t, func(t *testing.T, s *server) {
				a, b := s.as("phoneacc"), s.as("other")
				a.want("MKD /gone/a", "257 *")
				a.store("/gone/a/f", "x")
				end(s, a)
				b.want("MKD /gone/a", "257 *")
				if got := b.fetch("NLST /gone/a"); got != "" {
					t.Errorf("the next holder finds %q", got)
				}
				b.want("RMD /gone/a", "250 *")
				s.until("it is moved aside", func() bool { return s.leftovers() == "/gone/a f x" })
				s.until("nothing is hidden", func() bool { return len(onDisk(t, filepath.Join(s.state, "inside"))) == 0 })
				s.wantNothingHidden()
				for _, command := range []string{"NLST -a /", "LIST -a /", "MLSD /", "NLST -a /gone", "NLST /.*"} {
					if got := b.fetch(command); strings.Contains(got, "ftplockd") {
						t.Errorf("%s: %q", command, got)
					}
				}
			})
		})
	}
}

func TestALockThatIdledKeepsItsFilesAside(t *testing.T) {
	for name, mode := range map[string]func(*setup){"directories": func(*setup) {}, "no directories": plainLocks} {
		t.Run(name, func(t *testing.T) {
			s := start(t, mode, func(o *setup) { o.rules = []lock.Rule{{Match: "**/*_lock", MaxIdle: 30 * time.Minute}} })
			c := s.as("phoneacc")
			c.want("MKD /a_lock", "257 *")
			c.store("/a_lock/f", "x")
			c.Close()
			s.alone()
			s.pass(29 * time.Minute)
			s.wantLeftovers("")
			s.pass(2 * time.Minute)
			s.wantLeftovers("/a_lock f x")
		})
	}
}

func TestTheNextHolderOfAJobFindsTheFiles(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *server) {
		a := s.job("phoneacc")
		a.want("MKD /a_lock", "257 *")
		a.store("/a_lock/f", "x")
		a.want("MKD /a_lock/dir", "257 *")
		a.store("/a_lock/dir/g", "y")
		b := s.job("phoneacc")
		b.want("MKD /a_lock", `257 "/a_lock" locked, *, adopted from token #`)
		if got := b.fetch("NLST /a_lock") + b.fetch("RETR /a_lock/f") + b.fetch("RETR /a_lock/dir/g"); got != "/a_lock/dir\r\n/a_lock/f\r\nxy" {
			t.Errorf("in the lock: %q", got)
		}
		b.store("/a_lock/f", "z")
		s.wantLeftovers("")
		s.pass(7 * time.Minute)
		s.wantLeftovers("/a_lock dir/g y\n/a_lock f z")
		s.wantNothingHidden()
	})
}

// The runner that a job has lost ends while the next one adopts its lock.
func TestFilesAreAdoptedWhileTheLastSessionEnds(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *server) {
		last := s.job("phoneacc")
		last.want("MKD /a_lock", "257 *")
		last.store("/a_lock/f", "x")
		for range 20 {
			next := s.job("phoneacc")
			var closing sync.WaitGroup
			closing.Go(func() { last.Close() })
			next.want("MKD /a_lock", "257 *")
			closing.Wait()
			next.want("SIZE /a_lock/f", "213 1")
			last = next
		}
		s.wantLeftovers("")
	})
}

// An upload under the hold that was adopted is not one under the next.
func TestAnUploadIsDiscardedIfItsLockIsAdoptedMeanwhile(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *server) {
		a, b := s.job("phoneacc"), s.job("phoneacc")
		a.want("MKD /a_lock", "257 *")
		a.store("/a_lock/f", "x")
		d := a.data()
		a.want("STOR /a_lock/f", "150 *")
		b.want("MKD /a_lock", "257 *")
		d.Write([]byte("late"))
		d.Close()
		a.check("STOR", a.reply(), "550 /a_lock/f: lies in the lock /a_lock, *")
		if got := b.fetch("NLST /a_lock") + b.fetch("RETR /a_lock/f"); got != "/a_lock/f\r\nx" {
			t.Errorf("in the lock: %q", got)
		}
	})
}

func TestAnAdoptionThatWasNotHeardLeavesTheFilesAside(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *server) {
		a, b := s.job("phoneacc"), s.job("phoneacc")
		a.want("MKD /a_lock", "257 *")
		a.store("/a_lock/f", "x")
		b.want("MKD /a_lock", "257 *")
		b.reset()
		s.until("the grant is taken back", func() bool { return !s.held("/a_lock") })
		a.Close()
		s.alone()
		s.wantLeftovers("/a_lock f x")
		s.wantNothingHidden()
		c := s.as("other")
		c.want("MKD /a_lock", "257 *")
		c.want("RMD /a_lock", "250 *")
	})
}

// A mirror stores by several connections at once, from the first file on.
func TestTheFirstFilesInALockComeByManyConnections(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *server) {
		s.job("phoneacc").want("MKD /a_lock", "257 *")
		var conns []*conn
		for range 8 {
			conns = append(conns, s.job("phoneacc"))
		}
		var storing sync.WaitGroup
		for i, c := range conns {
			storing.Go(func() { c.store("/a_lock/"+string(rune('a'+i)), "x") })
		}
		storing.Wait()
		if got := conns[0].fetch("NLST /a_lock"); strings.Count(got, "\r\n") != 8 {
			t.Errorf("in the lock: %q", got)
		}
	})
}

func TestARestartKeepsTheFilesOfAHeldLock(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *server) {
		a := s.job("phoneacc")
		for _, name := range []string{"/locks/a", "/locks/g", "/locks/g/m"} {
			a.want("MKD "+name, "257 *")
			a.store(name+"/f", name)
		}
		s.restart(time.Minute)
		a = s.job("phoneacc")
		for _, name := range []string{"/locks/a", "/locks/g", "/locks/g/m"} {
			if got := a.fetch("RETR " + name + "/f"); got != name {
				t.Errorf("%s/f holds %q", name, got)
			}
			a.store(name+"/f", "again")
		}
		a.want("DELE /locks/a/f", "250 *")
		a.want("RMD /locks/a", "250 *")
		s.restart(7 * time.Minute) // the locks' age is over meanwhile
		s.pass(0)
		if err := s.driver.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.wantLeftovers("/locks/g f again\n/locks/g/m f again")
		s.wantNothingHidden()
		b := s.as("other")
		b.want("MKD /locks/g", "257 *")
		if got := b.fetch("NLST /locks/g"); got != "" {
			t.Errorf("the next holder finds %q", got)
		}
	})
}

// The server crashes when the end of a lock is in the journal and what lies in it has not been moved aside yet.
func TestWhatACrashLeavesInALockThatHasEndedIsMovedAside(t *testing.T) {
	s := start(t, plainLocks)
	a := s.as("phoneacc")
	a.want("MKD /gone/a", "257 *")
	a.store("/gone/a/f", "x")
	hidden, err := filepath.Glob(filepath.Join(s.root, "gone/.ftplockd-lock-*"))
	records := onDisk(t, filepath.Join(s.state, "inside"))
	if err != nil || len(hidden) != 1 || len(records) != 1 {
		t.Fatalf("%q, %v, %q", hidden, err, records)
	}
	record := filepath.Join(s.state, "inside", records[0])
	text, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	s.as("boss").breaks("/gone/a")
	s.wantLeftovers("/gone/a f x")
	s.halt()
	left, err := filepath.Glob(filepath.Join(s.root, ".ftplockd-leftovers/*"))
	if err != nil || len(left) != 1 {
		t.Fatalf("%q, %v", left, err)
	}
	if err := os.Rename(left[0], hidden[0]); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(record, text, 0o600); err != nil {
		t.Fatal(err)
	}
	s.run(s.setup)
	b := s.as("other")
	b.want("MKD /gone/a", "257 *")
	b.store("/gone/a/g", "y")
	if got := b.fetch("NLST /gone/a"); got != "/gone/a/g\r\n" {
		t.Errorf("the next holder finds %q", got)
	}
	if err := s.driver.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.wantLeftovers("/gone/a f x")
	if got := b.fetch("RETR /gone/a/g"); got != "y" {
		t.Errorf("the next holder's file holds %q", got)
	}
	b.want("DELE /gone/a/g", "250 *")
	b.want("RMD /gone/a", "250 *")
	s.wantNothingHidden()
}

func TestAMemberAndItsGroupHaveFilesOfTheirOwn(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *server) {
		a, b := s.as("phoneacc"), s.as("other")
		a.want("MKD /locks/g", "257 *")
		b.want("MKD /locks/g/m", "257 *")
		b.store("/locks/g/m/f", "member")
		a.store("/locks/g/f", "group")
		b.check("STOR", b.upload("STOR /locks/g/f", "x"), "550 *: lies in the lock /locks/g, which you do not hold")
		a.check("STOR", a.upload("STOR /locks/g/m/f", "x"), "550 *: lies in the lock /locks/g/m, which you do not hold")
		if got := a.fetch("NLST /locks/g") + a.fetch("NLST /locks/g/m"); got != "/locks/g/f\r\n/locks/g/m\r\n/locks/g/m/f\r\n" {
			t.Errorf("NLST: %q", got)
		}
		if got := a.fetch("RETR /locks/g/f") + b.fetch("RETR /locks/g/m/f"); got != "groupmember" {
			t.Errorf("RETR: %q", got)
		}
		if r := a.ask("RMD /locks/g"); !fits("550 /locks/g: there are locks below it", r) && !fits("550 /locks/g: the directory is not empty: *", r) {
			t.Errorf("RMD: %s", r)
		}
		b.want("RMD /locks/g/m", "550 /locks/g/m: the directory is not empty: *")
		b.want("DELE /locks/g/m/f", "250 *")
		b.want("RMD /locks/g/m", "250 *")
		a.want("RMD /locks/g", "550 /locks/g: the directory is not empty: *")
		a.want("DELE /locks/g/f", "250 *")
		a.want("RMD /locks/g", "250 *")
		s.wantNothingHidden()
	})
}

func TestAMemberThatEndsLeavesTheFilesOfItsGroup(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *server) {
		a, boss := s.as("phoneacc"), s.as("boss")
		a.want("MKD /locks/g", "257 *")
		a.want("MKD /locks/g/m", "257 *")
		a.store("/locks/g/f", "group")
		a.store("/locks/g/m/f", "member")
		boss.breaks("/locks/g/m")
		s.wantLeftovers("/locks/g/m f member")
		if got := a.fetch("NLST /locks/g"); got != "/locks/g/f\r\n" {
			t.Errorf("in the group: %q", got)
		}
		a.want("DELE /locks/g/f", "250 *")
		a.want("RMD /locks/g", "250 *")
		s.wantNothingHidden()
	})
}

func TestAMemberAndItsGroupEndTogether(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *server) {
		a := s.as("phoneacc")
		for _, name := range []string{"/locks/g", "/locks/g/m", "/locks/g/m/n"} {
			a.want("MKD "+name, "257 *")
		}
		a.store("/locks/g/m/n/f", "3")
		a.store("/locks/g/f", "1")
		a.store("/locks/g/m/f", "2")
		s.pass(7 * time.Minute)
		s.wantLeftovers("/locks/g f 1\n/locks/g/m f 2\n/locks/g/m/n f 3")
		s.wantNothingHidden()
		if s.held("/locks/g") {
			t.Error("the group is held")
		}
	})
}

func TestAGroupIsAdoptedWhileAMemberHasFiles(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *server) {
		a, b := s.job("phoneacc"), s.as("other")
		a.want("MKD /locks/g", "257 *")
		b.want("MKD /locks/g/m", "257 *")
		a.store("/locks/g/f", "group")
		b.store("/locks/g/m/f", "member")
		next := s.job("phoneacc")
		next.want("MKD /locks/g", "257 *, adopted from token #")
		b.store("/locks/g/m/g", "more")
		if got := next.fetch("RETR /locks/g/f") + b.fetch("RETR /locks/g/m/f"); got != "groupmember" {
			t.Errorf("RETR: %q", got)
		}
		s.as("boss").breaks("/locks/g/m")
		s.wantLeftovers("/locks/g/m f member\n/locks/g/m g more")
		next.want("DELE /locks/g/f", "250 *")
		next.want("RMD /locks/g", "250 *")
		s.wantNothingHidden()
	})
}

func TestHiddenNamesAreRefusedByEveryCommand(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *server) {
		c := s.as("boss")
		c.want("MKD /locks/a", "257 *")
		c.store("/locks/a/f", "x")
		c.want("MKD /locks/old", "257 *")
		c.store("/locks/old/f", "x")
		c.breaks("/locks/old")
		s.write("/free", "free")
		hidden := []string{"/.ftplockd-lock-1", "/.ftplockd-lock-x", "/.ftplockd-leftovers", "/.ftplockd-leftover-1-x"}
		if left := onDisk(t, filepath.Join(s.root, ".ftplockd-leftovers")); len(left) == 1 {
			hidden = append(hidden, "/.ftplockd-leftovers/"+left[0], "/.ftplockd-leftovers/"+left[0]+"/f")
		} else {
			t.Errorf("left over: %q", left)
		}
		hidden = append(hidden, "/locks/.ftplockd-lock-1", "/locks/.ftplockd-lock-1/f", "/locks/a/../.ftplockd-lock-1/f", "/locks/a/.ftplockd-lock-1")
		for _, name := range hidden {
			for _, command := range []string{
				"MKD ", "RMD ", "CWD ", "DELE ", "RNFR ", "SIZE ", "MDTM ", "MLST ", "STAT ", "HASH ", "XMD5 ", "AVBL ",
				"MFMT 20200101000000 ", "SITE CHMOD 700 ", "SITE LOCK INFO ", "SITE LOCK RENEW ", "SITE LOCK BREAK ",
			} {
				c.want(command+name, "553 *: that name is reserved")
			}
			for _, command := range []string{"STOR ", "APPE ", "STOU "} {
				c.check(command+name, c.upload(command+name, "x"), "553 *: that name is reserved")
			}
			for _, command := range []string{"RETR ", "LIST ", "NLST ", "MLSD "} {
				_, r := c.download(command + name)
				c.check(command+name, r, "553 *: that name is reserved")
			}
			c.want("RNFR /free", "350 *")
			c.want("RNTO "+name, "553 *: that name is reserved")
		}
		for _, command := range []string{"LIST -a /", "NLST -a /", "MLSD /", "LIST -a /locks", "NLST /.*", "NLST /locks/.*", "NLST -a /*/.*", "NLST /.ftplockd-*", "MLSD /locks", "NLST -a /locks/a"} {
			if got := c.fetch(command); strings.Contains(got, "ftplockd") {
				t.Errorf("%s: %q", command, got)
			}
		}
		if got := c.ask("STAT -a /"); strings.Contains(got, "ftplockd") {
			t.Errorf("STAT: %q", got)
		}
		s.wantLeftovers("/locks/old f x")
		if got := c.fetch("RETR /locks/a/f"); got != "x" {
			t.Errorf("in the lock: %q", got)
		}
	})
}

func TestWhoSharesALockWritesNothingInIt(t *testing.T) {
	for name, mode := range map[string]func(*setup){"directories": func(*setup) {}, "no directories": plainLocks} {
		t.Run(name, func(t *testing.T) {
			s := start(t, mode, func(o *setup) {
				o.rules = []lock.Rule{{Match: "**/*_lock", Contention: &lock.Contention{Shared: []string{"phoneacc", "other"}}}}
			})
			a, b := s.as("phoneacc"), s.as("other")
			const why = "550 *: lies in the lock /a_lock, which you do not hold alone"
			a.want("MKD /a_lock", "257 *")
			a.check("STOR", a.upload("STOR /a_lock/f", "x"), why)
			b.want("MKD /a_lock", "257 *")
			for _, c := range []*conn{a, b} {
				c.check("STOR", c.upload("STOR /a_lock/f", "x"), why)
				c.want("MKD /a_lock/dir", why)
			}
			a.want("RMD /a_lock", "250 *")
			b.want("RMD /a_lock", "250 *")
			s.wantNothingHidden()
		})
	}
}

// Whoever may give a lock back may not while something is in it.
func TestAnybodyGivesALockBackOnlyWhenItIsEmpty(t *testing.T) {
	for name, mode := range map[string]func(*setup){"directories": func(*setup) {}, "no directories": plainLocks} {
		t.Run(name, func(t *testing.T) {
			s := start(t, mode, func(o *setup) {
				o.rules = []lock.Rule{{Match: "**/*_lock", Release: lock.ReleaseAnyone, MaxAge: time.Hour}}
			})
			a, b := s.as("phoneacc"), s.as("other")
			a.want("MKD /a_lock", "257 *")
			a.store("/a_lock/f", "x")
			b.want("RMD /a_lock", "550 /a_lock: the directory is not empty: *")
			if got := a.fetch("RETR /a_lock/f"); got != "x" {
				t.Errorf("in the lock: %q", got)
			}
			a.want("DELE /a_lock/f", "250 *")
			b.want("RMD /a_lock", "250 *")
			s.wantNothingHidden()
		})
	}
}

// The lock's directory stays a directory where it can be read while its holder changes it.
func TestALockIsReadWhileItsHolderChangesIt(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *server) {
		a, b := s.as("phoneacc"), s.as("other")
		var reading sync.WaitGroup
		done := make(chan struct{})
		reading.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				for _, command := range []string{"NLST /open/a", "LIST /open", "MLSD /open/a"} {
					if got, r := b.download(command); !fits("226 *", r) && !fits("550 *", r) || strings.Contains(got, "ftplockd") {
						t.Errorf("%s: %q, %s", command, got, r)
					}
				}
			}
		})
		for range 30 {
			a.want("MKD /open/a", "257 *")
			a.store("/open/a/f", "x")
			a.want("DELE /open/a/f", "250 *")
			a.want("RMD /open/a", "250 *")
		}
		close(done)
		reading.Wait()
		s.wantNothingHidden()
	})
}

func TestAHolderInItsHomeSeesItsOwnNames(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *server) {
		c := s.as("bob")
		c.want("MKD a_lock", `257 "/work/a_lock" locked, *`)
		c.store("a_lock/f", "x")
		c.want("SIZE /work/a_lock/f", "213 1")
		b := s.as("phoneacc")
		b.check("STOR", b.upload("STOR /home/bob/work/a_lock/f", "y"), "550 /home/bob/work/a_lock/f: lies in the lock /home/bob/work/a_lock, which you do not hold")
		s.as("boss").breaks("/home/bob/work/a_lock")
		c.check("STOR", c.upload("STOR a_lock/f", "y"), "550 *")
		s.wantLeftovers("/home/bob/work/a_lock f x")
	})
}

func TestLeftoversAreRemovedWhenTheyAreOldEnough(t *testing.T) {
	for name, mode := range map[string]func(*setup){"directories": func(*setup) {}, "no directories": plainLocks} {
		t.Run(name, func(t *testing.T) {
			s := start(t, mode, func(o *setup) { o.settings.LeftoverMaxAge = 168 * time.Hour })
			c := s.as("phoneacc")
			c.want("MKD /a_lock", "257 *")
			c.store("/a_lock/f", "x")
			s.as("boss").breaks("/a_lock")
			left := onDisk(t, filepath.Join(s.root, ".ftplockd-leftovers"))
			if len(left) != 1 {
				t.Fatalf("left over: %q", left)
			}
			for _, tt := range []struct {
				age  time.Duration
				want string
			}{{167 * time.Hour, "/a_lock f x"}, {169 * time.Hour, ""}} {
				at := s.clock.Now().Wall.Add(-tt.age)
				if err := os.Chtimes(filepath.Join(s.root, ".ftplockd-leftovers", left[0]), at, at); err != nil {
					t.Fatal(err)
				}
				if err := s.driver.Sweep(t.Context()); err != nil {
					t.Error(err)
				}
				s.wantLeftovers(tt.want)
			}
		})
	}
}

// RMD of a group that is empty waits for its members. Of another it is refused, then or at once.
func TestAGroupIsGivenBackAfterItsMembersOnlyIfItIsEmpty(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *server) {
		a, b := s.as("phoneacc"), s.as("other")
		a.want("SITE WAIT 10", "200 *")
		a.want("MKD /locks/g", "257 *")
		a.store("/locks/g/f", "group")
		for _, full := range []bool{true, false} {
			b.want("MKD /locks/g/m", "257 *")
			b.store("/locks/g/m/f", "member")
			a.send("RMD /locks/g\r\n")
			if !full || s.setup.directories {
				s.until("it waits", func() bool { return somewhere("(*client).removeOrRelease", "(*Command).Wait") })
			}
			b.want("DELE /locks/g/m/f", "250 *")
			b.want("RMD /locks/g/m", "250 *")
			if full {
				if r := a.reply(); !fits("550 /locks/g: the directory is not empty: *", r) {
					t.Fatalf("RMD: %s", r)
				}
				if got := a.fetch("RETR /locks/g/f"); got != "group" {
					t.Errorf("in the group: %q", got)
				}
				a.want("DELE /locks/g/f", "250 *")
			} else {
				a.check("RMD", a.reply(), "250 *")
			}
		}
		a.Close() // what is empty and hidden may go a moment later
		b.Close()
		s.alone()
		s.wantLeftovers("")
		s.wantNothingHidden()
	})
}

// The server was killed after it had noted the hidden directory and before it had made it, or somebody removed it.
func TestAHiddenDirectoryThatIsMissingIsMadeAgain(t *testing.T) {
	s := start(t, plainLocks)
	c := s.job("phoneacc")
	c.want("MKD /a_lock", "257 *")
	c.store("/a_lock/f", "x")
	hidden, err := filepath.Glob(filepath.Join(s.root, ".ftplockd-lock-*"))
	if err != nil || len(hidden) != 1 {
		t.Fatalf("%q, %v", hidden, err)
	}
	if err := os.RemoveAll(hidden[0]); err != nil {
		t.Fatal(err)
	}
	s.restart(time.Second)
	c = s.job("phoneacc")
	if got := c.fetch("NLST /a_lock"); got != "" {
		t.Errorf("in the lock: %q", got)
	}
	c.store("/a_lock/f", "y")
	if got := c.fetch("RETR /a_lock/f"); got != "y" {
		t.Errorf("in the lock: %q", got)
	}
	c.want("DELE /a_lock/f", "250 *")
	if err := os.RemoveAll(hidden[0]); err != nil {
		t.Fatal(err)
	}
	c.want("RMD /a_lock", "250 *")
	s.wantNothingHidden()
}

// Whoever brings locks.directories in while locks are held loses no file in them.
func TestFilesInLocksStayWhenLocksBecomeDirectories(t *testing.T) {
	s := start(t, func(o *setup) { o.directories = false })
	c := s.job("phoneacc")
	c.want("MKD /a_lock", "257 *")
	c.store("/a_lock/f", "x")
	s.setup.directories = true
	s.restart(time.Second)
	c = s.job("phoneacc")
	if got := c.fetch("RETR /a_lock/f"); got != "x" {
		t.Errorf("in the lock: %q", got)
	}
	c.store("/a_lock/g", "y")
	if got := c.fetch("NLST /a_lock") + c.fetch("RETR /a_lock/f") + c.fetch("RETR /a_lock/g"); got != "/a_lock/f\r\n/a_lock/g\r\nxy" {
		t.Errorf("in the lock: %q", got)
	}
	c.want("DELE /a_lock/f", "250 *")
	c.want("DELE /a_lock/g", "250 *")
	c.want("RMD /a_lock", "250 *")
	c.want("MKD /a_lock", "257 *")
}

func TestALinkInALockLeadsWhereItDoesElsewhere(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *server) {
		s.write("/dir/f", "x")
		s.mkdir("/sub")
		s.link("../dir", "/sub/link")
		c := s.as("phoneacc")
		c.want("MKD /a_lock", "257 *")
		c.want("RNFR /sub/link", "350 *")
		c.want("RNTO /a_lock/link", "250 *")
		if got, r := c.download("RETR /a_lock/link/f"); got != "x" {
			t.Errorf("RETR: %q, %s", got, r)
		}
		if got, r := c.download("NLST /a_lock/link"); got != "/a_lock/link/f\r\n" {
			t.Errorf("NLST: %q, %s", got, r)
		}
		c.want("CWD /a_lock/link", "250 *")
	})
}

// A path has one name, also through a link that was moved into a lock: what protects that is asked.
func TestALinkInALockIsNoWayAroundWhatProtectsAFile(t *testing.T) {
	for name, mode := range map[string]func(*setup){"directories": func(*setup) {}, "no directories": plainLocks} {
		t.Run(name, func(t *testing.T) {
			s, _ := startProtected(t, protected, mode)
			s.write("/dir/phone.tsv", "old")
			s.mkdir("/sub")
			s.link("../dir", "/sub/link")
			c := s.as("phoneacc")
			c.want("MKD /a_lock", "257 *")
			c.want("RNFR /sub/link", "350 *")
			c.want("RNTO /a_lock/link", "250 *")
			const why = "550 *: protected by the lock /dir/phone_lock, which you do not hold"
			c.check("STOR", c.upload("STOR /a_lock/link/phone.tsv", "new"), why)
			c.want("DELE /a_lock/link/phone.tsv", why)
			c.want("RNFR /a_lock/link/phone.tsv", why)
			c.want("MKD /a_lock/link/x_lock", `257 "/a_lock/link/x_lock" locked, *`)
			if !s.held("/dir/x_lock") {
				t.Error("a lock has two names")
			}
			s.wantContent("/dir/phone.tsv", "old")
		})
	}
}

// An upload may begin in the moment between two holds, when a lock's directory is there for the next one. If that is moved
// aside before the upload ends, it replaces nothing in what was left over.
func TestAnUploadDoesNotEndInWhatWasMovedAside(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *server) {
		a, b := s.as("phoneacc"), s.as("other")
		a.want("MKD /a_lock", "257 *")
		a.store("/a_lock/f", "left")
		var uploads []*upload
		for _, name := range []string{"/a_lock/f", "/a_lock/new"} {
			u, err := s.driver.tree.Upload(s.driver.disk(lock.Name(name)), files.UploadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			late := &upload{transfer: &transfer{client: b.fs()}, file: u}
			if _, err := late.file.Write([]byte("late")); err != nil {
				t.Fatal(err)
			}
			uploads = append(uploads, late)
		}
		s.as("boss").breaks("/a_lock")
		for _, late := range uploads {
			if err := late.put(); err == nil {
				t.Errorf("it was published as %s", late.file.Name())
			} else if err := late.file.Discard(); err != nil {
				t.Error(err)
			}
		}
		b.want("NOOP", "200 *") // its session is used here no more
		s.wantLeftovers("/a_lock f left")
	})
}

// Of a lock that was taken twice, RMD gives back the first time whatever lies in it.
func TestALockThatIsHeldOnceMoreMayHaveFiles(t *testing.T) {
	for name, mode := range map[string]func(*setup){"directories": func(*setup) {}, "no directories": plainLocks} {
		t.Run(name, func(t *testing.T) {
			s := start(t, mode, func(o *setup) {
				o.rules = []lock.Rule{{Match: "**/*_lock", MaxAge: time.Hour, Contention: &lock.Contention{Reentrant: true}}}
			})
			c := s.as("phoneacc")
			c.want("MKD /a_lock", "257 *")
			c.store("/a_lock/f", "x")
			c.want("MKD /a_lock", "257 *")
			if got := c.fetch("RETR /a_lock/f"); got != "x" {
				t.Errorf("in the lock: %q", got)
			}
			c.want("RMD /a_lock", "250 /a_lock is still held, RMD it 1 more")
			if got := c.fetch("RETR /a_lock/f"); got != "x" {
				t.Errorf("in the lock: %q", got)
			}
			c.want("RMD /a_lock", "550 /a_lock: the directory is not empty: *")
			c.want("DELE /a_lock/f", "250 *")
			c.want("RMD /a_lock", "250 /a_lock released")
			s.wantNothingHidden()
		})
	}
}
