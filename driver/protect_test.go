package driver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/afero"

	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// published returns the publications in the log: lock, token, account, file, bytes, the first digits of the digest, note.
func (s *server) published() string {
	var lines []string
	for _, r := range s.memory.Records() {
		if p := r.File; r.Kind == lock.Published {
			lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %d %s %s %d %.4s %s", r.Hold.Name, r.Hold.Token, r.By.Account, p.Path, p.Bytes, p.SHA256, r.Note)))
		}
	}
	return strings.Join(lines, "\n")
}

// protected has the locks of the article, which protect the files beside them.
func protected(s *setup) {
	s.rules = []lock.Rule{
		{Match: "**/*_lock", MaxAge: 6 * time.Minute, Protection: &lock.Protection{Paths: []string{"$1/$2.tsv", "$1/$2.d/**/*.dat"}}},
		{Match: "/locks/*", MaxAge: 6 * time.Minute, Protection: &lock.Protection{Paths: []string{"/shared/$1.s"}}},
	}
}

const notHeld = "protected by the lock /phone_lock, which you do not hold"

// session is the server's side of a client.
func (c *conn) session() *client {
	c.T.Helper()
	for conn := range c.server.control.Conns() {
		if conn.RemoteAddr().String() == c.Conn.LocalAddr().String() {
			// What the test does with it comes before the session's end: the race detector follows bytes that are written and read.
			c.T.Cleanup(func() { _, _ = c.Conn.Write([]byte("NOOP\r\n")) })
			return conn.Handler().(*client)
		}
	}
	c.T.Fatal("no such session")
	return nil
}

// A change is refused if its path leads elsewhere by the time of the change.
func TestAPathThatLeadsElsewhereIsNotChanged(t *testing.T) {
	s := start(t, protected)
	s.mkdir("/dir")
	s.link("dir", "/way")
	c := s.as("phoneacc")
	client := c.session()
	ran := false
	err := client.changeAndRecord("/way/f", "", func(files.Check) error { ran = true; return nil })
	if !errors.Is(err, errMovedLink) || ran {
		t.Errorf("%v, ran: %v", err, ran)
	}
}

func TestLinksToAProtectedFileDoNotChangeIt(t *testing.T) {
	s := start(t, protected)
	s.write("/phone.tsv", "old")
	if err := os.Link(filepath.Join(s.root, "phone.tsv"), filepath.Join(s.root, "twin")); err != nil {
		t.Fatal(err)
	}
	s.play(t, `
		- link /link phone.tsv
		boss MFMT 20200101000000 /twin => 550 /twin: has other names (hard links), which may be protected
		boss SITE CHMOD 600 /twin => 550 /twin: has other names (hard links), which may be protected
		boss MFMT 20200101000000 /link => 550 /link: `+notHeld+`
		boss SITE CHMOD 600 /link => 550 /link: `+notHeld+`
		boss APPE /twin <<< +new => 226 *
		boss STOR /link <<< new => 226 *
		boss MLST /phone.tsv => 250-*\n type=file;size=3;*;unix.mode=0644; /phone.tsv\n250 *
		- file /twin old+new
		- file /phone.tsv old`)
}

func TestEveryChangeOfAProtectedFileIsRefused(t *testing.T) {
	s := start(t, protected)
	refusals := func(why string) string {
		return strings.ReplaceAll(`
		boss STOR /phone.tsv <<< new => 550 *: WHY
		boss APPE /phone.tsv <<< new => 550 *: WHY
		boss STOR //dir/..//phone.tsv <<< new => 550 *: WHY
		boss DELE /phone.tsv => 550 /phone.tsv: WHY
		boss RNFR /phone.tsv => 550 /phone.tsv: WHY
		boss RNFR /free => 350 *
		boss RNTO /phone.tsv => 550 /phone.tsv: WHY
		boss MFMT 20200101000000 /phone.tsv => 550 /phone.tsv: WHY
		boss SITE CHMOD 600 /phone.tsv => 550 /phone.tsv: WHY
		boss MKD /phone.d/sub.dat => 550 /phone.d/sub.dat: WHY
		boss RMD /phone.d/was.dat => 550 /phone.d/was.dat: WHY
		`, "WHY", why)
	}
	s.play(t, `
		- write /phone.tsv old
		- write /free free
		- mkdir /dir
		- link /way dir
		- write /dir/x.tsv old
		- mkdir /phone.d/was.dat
		`+refusals(notHeld)+`
		b MKD /phone_lock => 257 *
		`+refusals(notHeld)+`
		b RMD /phone_lock => 250 *
		boss MKD /phone_lock => 257 *
		- pass 361s
		- late 12s
		`+refusals("protected by the lock /phone_lock, taken away 1#s ago: older than 6m0s")+`
		# by another way to the same name
		boss STOR /way/x.tsv <<< new => 550 /way/x.tsv: protected by the lock /dir/x_lock, which you do not hold
		boss DELE /way/x.tsv => 550 /way/x.tsv: protected by the lock /dir/x_lock, which you do not hold
		- file /phone.tsv old
		- file /dir/x.tsv old
		- file /free free`)
	if got := s.published(); got != "" {
		t.Errorf("published: %s", got)
	}
}

func TestTheHistoryRecordsChangesOfProtectedFiles(t *testing.T) {
	s := start(t, protected)
	s.play(t, `
		- write /phone.tsv old
		- mkdir /phone.d
		boss TYPE I => 200 *
		boss MKD /phone_lock => 257 "/phone_lock" locked, token 1,*
		boss STOR /phone.tsv <<< abc => 226 *
		boss APPE /phone.tsv <<< def => 226 *
		- file /phone.tsv abcdef
		boss MFMT 20200101000000 /phone.tsv => 213 *
		boss SITE CHMOD 600 /phone.tsv => 200 *
		boss RNFR /phone.tsv => 350 *
		boss RNTO /free => 250 *
		boss RNFR /free => 350 *
		boss RNTO /phone.tsv => 250 *
		boss DELE /phone.tsv => 250 *
		boss MKD /phone.d/x.dat => 257 *
		boss RMD /phone.d/x.dat => 250 *
		boss STOR /free <<< not protected => 226 *
		boss RMD /phone_lock => 250 *`)
	want := `/phone_lock 1 boss /phone.tsv 3 ba78
/phone_lock 1 boss /phone.tsv 6 bef5
/phone_lock 1 boss /phone.tsv 0  time or mode set
/phone_lock 1 boss /phone.tsv 0  time or mode set
/phone_lock 1 boss /phone.tsv 0  renamed to /free
/phone_lock 1 boss /phone.tsv 0  renamed from /free
/phone_lock 1 boss /phone.tsv 0  removed
/phone_lock 1 boss /phone.d/x.dat 0  directory made
/phone_lock 1 boss /phone.d/x.dat 0  directory removed`
	if got := s.published(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestAnUploadIsNotPublishedWhenItsHoldHasEnded(t *testing.T) {
	s := start(t, protected)
	s.play(t, `
		- write /phone.tsv old
		a MKD /phone_lock => 257 *
		a STOR /phone.tsv <<< late ...
		- pass 361s
		a => 550 /phone.tsv: protected by the lock /phone_lock, taken away *: older than 6m0s
		# its time is over, and nobody has looked yet
		a RMD /phone_lock => 550 *
		a MKD /phone_lock => 257 *
		a APPE /phone.tsv <<< late ...
		- late 361s
		a => 550 /phone.tsv: protected by the lock /phone_lock, taken away *: older than 6m0s
		- pass 0s
		# another's by now
		a MKD /phone_lock => 257 *
		a STOR /phone.tsv <<< late ...
		- break /phone_lock
		boss MKD /phone_lock => 257 *
		a => 550 /phone.tsv: protected by the lock /phone_lock, taken away *: broken by boss@127.0.0.1
		boss RMD /phone_lock => 250 *
		# its own again, but another hold: somebody may have changed the file in between
		a SITE LOCK AS job => 200 *
		a2 SITE LOCK AS job => 200 *
		a RMD /phone_lock => 550 *
		a MKD /phone_lock => 257 *
		a STOR /phone.tsv <<< late ...
		a2 MKD /phone_lock => 257 *adopted*
		a => 550 /phone.tsv: protected by the lock /phone_lock, which was given back meanwhile
		a2 RMD /phone_lock => 250 *
		# a client that is cut off
		a MKD /phone_lock => 257 *
		a STOR /phone.tsv <<< half ...
		- reset a
		- alone
		- file /phone.tsv old`)
	if got := s.published(); got != "" {
		t.Errorf("published: %s", got)
	}
}

func TestChangesOfProtectedFilesAreReported(t *testing.T) {
	var events notebook
	plays(t, `
		- write /phone.tsv old
		a DELE /phone.tsv => 550 *
		a MKD /phone_lock => 257 *
		a STOR /phone.tsv <<< late ...
		- break /phone_lock
		a => 550 *
		- file /phone.tsv old
		boss MKD /phone_lock => 257 *
		boss STOR /phone.tsv <<< abc => 226 *
		boss STOR /free <<< abc => 226 *
		- break /phone_lock
		boss SITE CHMOD 600 /phone.tsv => 550 *`, protected, events.ofFiles)
	want := []string{
		"protect /phone.tsv /phone_lock 0 0", "discard /phone.tsv 0 4 protected", "protect /phone.tsv /phone_lock 0 0",
		"publish /phone.tsv /phone_lock 2 boss@127.0.0.1 3 ba78", "publish /free 0 3", "protect /phone.tsv /phone_lock 0 0",
	}
	if got := events.await(t, "", len(want)); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// An upload that began without protection does not change a protected file: its directory may be renamed, a program on the host may put
// a link in the place of the directory, or a reload may protect the path.
func TestAnUploadIsRefusedIfItsPathBecomesProtected(t *testing.T) {
	s := start(t, protected)
	const moved = "451 *: a directory above it was moved meanwhile"
	s.play(t, `
		- mkdir /in
		a STOR /in/f.dat <<< x ...
		b RNFR /in => 350 *
		b RNTO /phone.d => 250 *
		a => `+moved+`
		- file /phone.d/f.dat (none)
		- write /phone.d/f.dat old
		- mkdir /in
		a STOR /in/f.dat <<< x ...
		- rename /in /away
		- link /in phone.d
		a => `+moved+`
		- file /phone.d/f.dat old
		- file /away/f.dat (none)
		- remove /in`)

	// The directory is renamed right before the step that checks and publishes.
	s.mkdir("/in2")
	c := s.as("phoneacc")
	goOn := s.publishing(c, "/in2/g.dat")
	err := errors.Join(os.RemoveAll(filepath.Join(s.root, "phone.d")), s.tree.Rename("/in2", "/phone.d"))
	goOn()
	if err != nil {
		t.Fatal(err)
	}
	c.check("STOR", c.reply(), moved)
	s.wantContent("/phone.d/g.dat", "(none)")

	d := c.begun("STOR /f.new", "x")
	rules, err := lock.NewRules([]lock.Rule{{Match: "**/*_lock", Protection: &lock.Protection{Paths: []string{"$1/$2.new"}}}})
	if err != nil {
		t.Fatal(err)
	}
	s.table.SetRules(rules)
	d.Close()
	c.check("STOR", c.reply(), "550 /f.new: protected by the lock /f_lock, which you do not hold")
}

func TestDirectoriesAboveProtectedFilesStay(t *testing.T) {
	s := start(t, protected)
	rename := func(from, to, want string) string {
		return "boss RNFR " + from + " => 350 *\nboss RNTO " + to + " => " + want + "\n"
	}
	const below = "550 *: there are protected files below it, or would be"
	s.play(t, `
		- write /a/b/phone.tsv x
		- write /plain/f x
		- write /free/shared/f.s x
		- link /way a
		`+rename("/a", "/other", below)+rename("/a/b", "/a/c", below)+rename("/way/b", "/a/c", below)+
		rename("/plain", "/moved", "250 *")+rename("/moved", "/plain", "250 *")+
		rename("/free/shared", "/shared", below)+ // would bring /shared/f.s
		rename("/plain", "/phone.tsv", "550 /phone.tsv: "+notHeld)+
		rename("/plain", "/phone.d", "250 *")+rename("/phone.d", "/plain", "250 *")+`
		# and not by the holder either
		boss MKD /a/b/phone_lock => 257 *
		boss RNFR /a => 550 /a: there are held locks below it
		boss RMD /a/b/phone_lock => 250 *
		- file /a/b/phone.tsv x`)
	s.driver.bounds.below = 1
	s.mkdir("/plain/dir")
	s.play(t, rename("/plain", "/moved", "550 /moved: there is too much below it to look for protected files"))
}

// countingTree counts the entries that callers read from directories, and calls read before they do.
type countingTree struct {
	Tree
	entries *int
	read    func()
}

func (c countingTree) Open(name string) (afero.File, error) {
	f, err := c.Tree.Open(name)
	return countingFile{f, c.entries, c.read}, err
}

type countingFile struct {
	afero.File
	entries *int
	read    func()
}

func (c countingFile) Readdir(n int) ([]os.FileInfo, error) {
	c.read()
	infos, err := c.File.Readdir(n)
	*c.entries += len(infos)
	return infos, err
}

// While a rename that will be refused reads directories, changes of protected files do not wait for it.
func TestARefusedRenameHoldsUpNoChange(t *testing.T) {
	var s *server
	entries, blocked := 0, 0
	s = start(t, protected, func(o *setup) {
		o.wrap = func(tree *files.Tree) Tree {
			return countingTree{tree, &entries, func() {
				if !s.driver.layout.TryRLock() {
					blocked++
					return
				}
				s.driver.layout.RUnlock()
			}}
		}
	})
	s.write("/dir/phone.tsv", "x")
	for i := range 3 {
		s.mkdir(fmt.Sprint("/many/", i))
	}
	s.play(t, `
		boss RNFR /dir => 350 *
		boss RNTO /moved => 550 /moved: there are protected files below it, or would be`)
	s.driver.bounds.below = 2
	s.play(t, `
		boss RNFR /many => 350 *
		boss RNTO /moved => 550 /moved: there is too much below it to look for protected files`)
	if entries == 0 || blocked > 0 {
		t.Errorf("%d entries read, %d times while changes waited", entries, blocked)
	}
}

func TestARenameReadsNoMoreOfADirectoryThanItsBound(t *testing.T) {
	var entries int
	s := start(t, protected, func(o *setup) {
		o.wrap = func(tree *files.Tree) Tree { return countingTree{tree, &entries, func() {}} }
	})
	s.driver.bounds.below = 2
	for i := range 20 {
		s.mkdir(fmt.Sprint("/plain/", i))
	}
	s.play(t, `
		boss RNFR /plain => 350 *
		boss RNTO /moved => 550 /moved: there is too much below it to look for protected files`)
	if entries > 3 {
		t.Errorf("the rename read %d entries", entries)
	}
}

// A lock with the characters of a pattern in its name protects only its own file. A home is a part of the path: bob's /work/x.tsv is
// /home/bob/work/x.tsv, and its lock is /home/bob/work/x_lock.
func TestALockProtectsItsOwnFile(t *testing.T) {
	plays(t, `
		a MKD /*_lock => 257 *
		a STOR /phone.tsv <<< x => 550 /phone.tsv: `+notHeld+`
		a STOR /*.tsv <<< x => 226 *
		a MKD /[a-z]_lock => 257 *
		a STOR /a.tsv <<< x => 550 *: protected by the lock /a_lock, which you do not hold
		a STOR /[a-z].tsv <<< x => 226 *
		a MKD /\xe9_lock => 257 *
		a STOR /\xe9.tsv <<< x => 226 *
		bob STOR x.tsv <<< x => 550 /work/x.tsv: protected by the lock /work/x_lock, which you do not hold
		bob STOR /y.out <<< x => 550 /y.out: protected by a lock outside of what this account sees
		a MKD /home/bob/work/x_lock => 257 *
		a STOR /home/bob/work/x.tsv <<< c => 226 *
		a RMD /home/bob/work/x_lock => 250 *
		bob MKD x_lock => 257 *
		bob STOR x.tsv <<< bob => 226 *
		a STOR /home/bob/work/x.tsv <<< x => 550 *: protected by the lock /home/bob/work/x_lock, which you do not hold
		- file /home/bob/work/x.tsv bob`, protected, func(o *setup) {
		o.rules = append(o.rules, lock.Rule{Match: "/out/*", Protection: &lock.Protection{Paths: []string{"/home/bob/$1.out"}}})
	})
}

// If a file becomes a directory or a link after its checks, it is not changed: those need other checks.
func TestAFileThatBecomesSomethingElseIsNotChanged(t *testing.T) {
	for command, replacement := range map[string]string{
		"RNTO /new_lock":                 "dir",
		"DELE /phone.tsv":                "link",
		"MFMT 20200101000000 /phone.tsv": "link",
		"SITE CHMOD 600 /phone.tsv":      "link",
	} {
		t.Run(command, func(t *testing.T) {
			s := start(t, protected)
			s.mkdir("/dir/sub")
			s.link("other.tsv", "/link")
			s.play(t, `
				- write /phone.tsv x
				- write /other.tsv x`)
			c := s.as("boss")
			c.want("MKD /phone_lock", "257 *")
			c.want("RNFR /phone.tsv", "350 *")
			replace := sync.OnceFunc(func() { s.play(t, "- remove /phone.tsv\n- rename /"+replacement+" /phone.tsv") })
			s.asked.Store(&replace) // right before the change
			c.want(command, "451 *: was replaced at the same moment: try again")
			s.asked.Store(nil)
			if info, err := os.Lstat(filepath.Join(s.root, "phone.tsv")); err != nil || info.Mode().IsRegular() {
				t.Errorf("%v, %v", info, err)
			}
		})
	}
}
