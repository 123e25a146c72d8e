package driver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// kept is what was written down.
type kept struct {
	mu  sync.Mutex
	all []lock.Publication
}

func (k *kept) Published(_ context.Context, p lock.Publication) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all = append(k.all, p)
	return nil
}

// lines are the publications since the last call: lock, token, account, file, bytes, the begin of the digest, note.
func (k *kept) lines() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var lines []string
	for _, p := range k.all {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %d %s %s %d %.4s %s", p.Lock, p.Token, p.By.Account, p.File, p.Bytes, p.SHA256, p.Note)))
	}
	k.all = nil
	return strings.Join(lines, "\n")
}

// protected has the article's locks protect the files beside them.
func protected(s *setup) {
	s.rules = []lock.Rule{
		{Match: "**/*_lock", MaxAge: 6 * time.Minute, Protection: &lock.Protection{Paths: []string{"$1/$2.tsv", "$1/$2.d/**/*.dat"}}},
		{Match: "/locks/*", MaxAge: 6 * time.Minute, Protection: &lock.Protection{Paths: []string{"/shared/$1.s"}}},
	}
}

// startProtected runs a server that keeps what is published.
func startProtected(t *testing.T, changes ...func(*setup)) (*server, *kept) {
	t.Helper()
	k := &kept{}
	s := start(t, append(changes, func(o *setup) { o.publications = k })...)
	return s, k
}

const notHeld = "protected by the lock /phone_lock, which you do not hold"

func TestEveryChangeOfAProtectedFileIsRefused(t *testing.T) {
	s, published := startProtected(t, protected)
	s.write("/phone.tsv", "old")
	s.write("/free", "free")
	s.mkdir("/dir")
	s.link("dir", "/way")
	s.write("/dir/x.tsv", "old")
	c := s.as("boss")
	refusals := func(why string) {
		t.Helper()
		for _, command := range []string{"STOR /phone.tsv", "APPE /phone.tsv", "STOR //dir/..//phone.tsv", "STOU /phone.d/x.dat"} {
			if strings.HasPrefix(command, "STOU") {
				s.mkdir("/phone.d")
			}
			if got := c.upload(command, "new"); !fits("550 *: "+why, got) {
				t.Errorf("%s: %s", command, got)
			}
		}
		c.want("DELE /phone.tsv", "550 /phone.tsv: "+why)
		c.want("RNFR /phone.tsv", "550 /phone.tsv: "+why)
		c.want("RNFR /free", "350 *")
		c.want("RNTO /phone.tsv", "550 /phone.tsv: "+why)
		c.want("MFMT 20200101000000 /phone.tsv", "550 /phone.tsv: "+why)
		c.want("SITE CHMOD 600 /phone.tsv", "550 /phone.tsv: "+why)
		c.want("MKD /phone.d/sub.dat", "550 /phone.d/sub.dat: "+why)
		s.mkdir("/phone.d/was.dat")
		c.want("RMD /phone.d/was.dat", "550 /phone.d/was.dat: "+why)
	}
	refusals(notHeld)
	other := s.as("other")
	other.want("MKD /phone_lock", "257 *")
	refusals(notHeld)
	other.want("RMD /phone_lock", "250 *")
	c.want("MKD /phone_lock", "257 *")
	s.pass(6*time.Minute + time.Second)
	s.clock.Advance(12 * time.Second)
	refusals("protected by the lock /phone_lock, taken away 1#s ago: older than 6m0s")
	// By another way to the same name.
	c.check("STOR /way/x.tsv", c.upload("STOR /way/x.tsv", "new"), "550 /way/x.tsv: protected by the lock /dir/x_lock, which you do not hold")
	c.want("DELE /way/x.tsv", "550 /way/x.tsv: protected by the lock /dir/x_lock, which you do not hold")
	s.wantContent("/phone.tsv", "old")
	s.wantContent("/dir/x.tsv", "old")
	s.wantContent("/free", "free")
	if got := published.lines(); got != "" {
		t.Errorf("published: %s", got)
	}
}

func TestTheHolderChangesProtectedFilesAndThatIsWrittenDown(t *testing.T) {
	s, published := startProtected(t, protected)
	s.write("/phone.tsv", "old")
	c := s.as("boss")
	c.want("TYPE I", "200 *")
	c.want("MKD /phone_lock", `257 "/phone_lock" locked, token 1,*`)
	c.store("/phone.tsv", "abc")
	c.check("APPE", c.upload("APPE /phone.tsv", "def"), "226 *")
	s.wantContent("/phone.tsv", "abcdef")
	c.want("MFMT 20200101000000 /phone.tsv", "213 *")
	c.want("SITE CHMOD 600 /phone.tsv", "200 *")
	c.want("RNFR /phone.tsv", "350 *")
	c.want("RNTO /free", "250 *")
	c.want("RNFR /free", "350 *")
	c.want("RNTO /phone.tsv", "250 *")
	c.want("DELE /phone.tsv", "250 *")
	s.mkdir("/phone.d")
	c.want("MKD /phone.d/x.dat", "257 *")
	c.want("RMD /phone.d/x.dat", "250 *")
	c.store("/free", "not protected")
	c.want("RMD /phone_lock", "250 *")
	want := `/phone_lock 1 boss /phone.tsv 3 ba78
/phone_lock 1 boss /phone.tsv 6 bef5
/phone_lock 1 boss /phone.tsv 0  time or mode set
/phone_lock 1 boss /phone.tsv 0  time or mode set
/phone_lock 1 boss /phone.tsv 0  renamed to /free
/phone_lock 1 boss /phone.tsv 0  renamed from /free
/phone_lock 1 boss /phone.tsv 0  removed
/phone_lock 1 boss /phone.d/x.dat 0  directory made
/phone_lock 1 boss /phone.d/x.dat 0  directory removed`
	if got := published.lines(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// begun begins an upload that stands still: finish ends it and returns the reply.
func (c *conn) begun(command, content string) (finish func() string) {
	c.t.Helper()
	nc := c.data()
	c.want(command, "150 *")
	if _, err := io.WriteString(nc, content); err != nil {
		c.t.Fatal(err)
	}
	return func() string { nc.Close(); return c.reply() }
}

func TestAnUploadIsNotPublishedWhenItsHoldHasEnded(t *testing.T) {
	s, published := startProtected(t, protected)
	s.write("/phone.tsv", "old")
	a, b := s.as("phoneacc"), s.as("boss")
	why := "550 /phone.tsv: protected by the lock /phone_lock, "

	a.want("MKD /phone_lock", "257 *")
	finish := a.begun("STOR /phone.tsv", "late")
	s.pass(6*time.Minute + time.Second) // reaped
	a.check("reaped", finish(), why+"taken away *: older than 6m0s")

	a.want("RMD /phone_lock", "550 *")
	a.want("MKD /phone_lock", "257 *")
	finish = a.begun("APPE /phone.tsv", "late")
	s.clock.Advance(6*time.Minute + time.Second) // over, and nobody has looked yet
	a.check("over", finish(), why+"taken away *: older than 6m0s")
	s.pass(0)

	a.want("MKD /phone_lock", "257 *")
	finish = a.begun("STOR /phone.tsv", "late")
	b.breaks("/phone_lock")
	b.want("MKD /phone_lock", "257 *")
	a.check("broken, and another's", finish(), why+"taken away *: broken by boss@127.0.0.1")
	b.want("RMD /phone_lock", "250 *")

	// Its own again, but another hold: somebody may have changed the file in between.
	a.want("RMD /phone_lock", "550 *")
	a.want("MKD /phone_lock", "257 *")
	finish = a.begun("STOR /phone.tsv", "late")
	b.breaks("/phone_lock")
	if _, _, err := a.session().locks.AcquireOrWait(context.Background(), "/phone_lock", nil); err != nil {
		t.Fatal(err)
	}
	a.check("broken, and its own again", finish(), why+"taken away *: broken by boss@127.0.0.1")
	a.want("RMD /phone_lock", "250 *")
	s.wantContent("/phone.tsv", "old")
	if got := published.lines(); got != "" {
		t.Errorf("published: %s", got)
	}
}

// session is the server's side of a client.
func (c *conn) session() *client {
	c.t.Helper()
	for conn := range c.server.control.Conns() {
		if conn.RemoteAddr().String() == c.LocalAddr().String() {
			// What the test does with it comes before the session's end: the race detector follows bytes that are written and read.
			c.t.Cleanup(func() { _, _ = c.Write([]byte("NOOP\r\n")) })
			return conn.Handler().(*client)
		}
	}
	c.t.Fatal("no such session")
	return nil
}

func TestAnUploadOfAClientThatIsCutOffIsNotPublished(t *testing.T) {
	s, _ := startProtected(t, protected)
	s.write("/phone.tsv", "old")
	c := s.as("phoneacc")
	c.want("MKD /phone_lock", "257 *")
	c.begun("STOR /phone.tsv", "half")
	c.reset()
	s.alone()
	s.wantContent("/phone.tsv", "old")
}

func TestAnUploadThatBeganWithoutProtectionIsNoWayAround(t *testing.T) {
	s, _ := startProtected(t, protected)
	s.mkdir("/in")
	s.mkdir("/x")
	c := s.as("phoneacc")
	finish := c.begun("STOR /in/phone.new", "x")
	// A reload makes it protected.
	rules, err := lock.NewRules([]lock.Rule{{Match: "**/*_lock", Protection: &lock.Protection{Paths: []string{"$1/$2.new"}}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.table.SetRules(t.Context(), rules); err != nil {
		t.Fatal(err)
	}
	s.as("other").want("MKD /in/phone_lock", "257 *")
	c.check("STOR", finish(), "550 /in/phone.new: protected by the lock /in/phone_lock, which you do not hold")
	c.want("MKD /x/phone_lock", "257 *")
	finish = c.begun("STOR /x/phone.new", "x")
	c.server.write("/x/other.new", "")
	c.check("STOR", finish(), "226 *")
}

func TestDirectoriesAboveProtectedFilesStay(t *testing.T) {
	s, _ := startProtected(t, protected)
	s.write("/a/b/phone.tsv", "x")
	s.write("/plain/f", "x")
	s.write("/free/shared/f.s", "x")
	s.link("a", "/way")
	c := s.as("phoneacc")
	rename := func(from, to, want string) {
		t.Helper()
		c.want("RNFR "+from, "350 *")
		c.want("RNTO "+to, want)
	}
	const below = "550 *: there are protected files below it, or would be"
	rename("/a", "/other", below)
	rename("/a/b", "/a/c", below)
	rename("/way/b", "/a/c", below)
	rename("/plain", "/moved", "250 *")
	rename("/moved", "/plain", "250 *")
	rename("/free/shared", "/shared", below) // would bring /shared/f.s
	rename("/plain", "/phone.tsv", "550 /phone.tsv: "+notHeld)
	rename("/plain", "/phone.d", "250 *")
	rename("/phone.d", "/plain", "250 *")
	c.want("MKD /a/b/phone_lock", "257 *")
	c.want("RNFR /a", "550 /a: there are held locks below it") // and not by the holder either
	c.want("RMD /a/b/phone_lock", "250 *")
	s.wantContent("/a/b/phone.tsv", "x")

	// Where there is too much to look at, nobody knows.
	for i := range maxBelow + 1 {
		if err := os.Mkdir(filepath.Join(s.root, "plain", fmt.Sprint(i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	rename("/plain", "/moved", "550 /moved: there is too much below it to look for protected files")
}

// An upload goes with its directory when that is renamed: what counts is the name that it has in the end.
func TestADirectoryIsNotMovedUnderAnUploadToMakeItProtected(t *testing.T) {
	s, _ := startProtected(t, protected)
	s.mkdir("/in")
	c, other := s.as("phoneacc"), s.as("other")
	finish := c.begun("STOR /in/f.dat", "x")
	other.want("RNFR /in", "350 *")
	other.want("RNTO /phone.d", "250 *")
	c.check("STOR", finish(), "550 /in/f.dat: protected by the lock /phone_lock, which you do not hold*")
	s.wantContent("/phone.d/f.dat", "(none)")
}

// The directory is renamed when the publication has looked at the name, and not yet at the gate.
func TestARenameInTheMiddleOfAPublicationIsNoticed(t *testing.T) {
	s, _ := startProtected(t, protected)
	s.mkdir("/in")
	c := s.as("phoneacc")
	finish := c.begun("STOR /in/f.dat", "x")
	s.driver.layout.Lock()
	done := make(chan string, 1)
	go func() { done <- finish() }()
	s.until("it is being published", func() bool { return somewhere("placeProtected", "(*RWMutex).RLock") })
	err := s.tree.Rename("/in", "/phone.d")
	s.driver.layout.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	c.check("STOR", <-done, "550 /in/f.dat: protected by the lock /phone_lock, which you do not hold*")
	s.wantContent("/phone.d/f.dat", "(none)")
}

// What was looked at by one name and leads elsewhere by now is not changed.
func TestANameThatLeadsElsewhereByNowIsNotChanged(t *testing.T) {
	s, _ := startProtected(t, protected)
	s.mkdir("/dir")
	s.link("dir", "/way")
	c := s.as("phoneacc")
	client := c.session()
	ran := false
	err := client.changing([]lock.Name{"/way/f"}, func([]lock.Title) error { ran = true; return nil })
	if !errors.Is(err, lock.ErrConflict) || ran {
		t.Errorf("%v, ran: %v", err, ran)
	}
}

// A program on the host puts a link in the place of a directory.
func TestALinkThatIsPutInTheWayOfAnUploadLeadsNowhere(t *testing.T) {
	s, _ := startProtected(t, protected)
	s.mkdir("/in")
	s.write("/phone.d/f.dat", "old")
	c := s.as("phoneacc")
	finish := c.begun("STOR /in/f.dat", "x")
	if err := os.Rename(filepath.Join(s.root, "in"), filepath.Join(s.root, "away")); err != nil {
		t.Fatal(err)
	}
	s.link("phone.d", "/in")
	c.check("STOR", finish(), "451 /in/f.dat: a directory above it was moved meanwhile")
	s.wantContent("/phone.d/f.dat", "old")
	s.wantContent("/away/f.dat", "(none)")
}

func TestAnotherNameOfAProtectedFileIsNoWayAround(t *testing.T) {
	s, _ := startProtected(t, protected)
	s.write("/phone.tsv", "old")
	if err := os.Link(filepath.Join(s.root, "phone.tsv"), filepath.Join(s.root, "twin")); err != nil {
		t.Fatal(err)
	}
	s.link("phone.tsv", "/link")
	c := s.as("boss")
	before, _ := os.Stat(filepath.Join(s.root, "phone.tsv"))
	const links = "550 /twin: has other names (hard links), which may be protected"
	c.want("MFMT 20200101000000 /twin", links)
	c.want("SITE CHMOD 600 /twin", links)
	c.want("MFMT 20200101000000 /link", "550 /link: "+notHeld)
	c.want("SITE CHMOD 600 /link", "550 /link: "+notHeld)
	c.check("APPE", c.upload("APPE /twin", " and new"), "226 *")
	c.check("STOR", c.upload("STOR /link", "new"), "226 *")
	s.wantContent("/twin", "old and new")
	s.wantContent("/phone.tsv", "old")
	after, _ := os.Stat(filepath.Join(s.root, "phone.tsv"))
	if !after.ModTime().Equal(before.ModTime()) || after.Mode() != before.Mode() {
		t.Error("changed by another name")
	}
}

func TestNamesWithGlobCharactersGuardThemselvesOnly(t *testing.T) {
	s, _ := startProtected(t, protected)
	c := s.as("phoneacc")
	c.want("MKD /*_lock", "257 *")
	c.check("STOR", c.upload("STOR /phone.tsv", "x"), "550 /phone.tsv: "+notHeld)
	c.store("/*.tsv", "x")
	c.want("MKD /[a-z]_lock", "257 *")
	c.check("STOR", c.upload("STOR /a.tsv", "x"), "550 *: protected by the lock /a_lock, which you do not hold")
	c.store("/[a-z].tsv", "x")
	c.send("MKD /\xff_lock\r\n")
	c.check("MKD", c.reply(), "257 *")
	c.store("/\xff.tsv", "x")
}

// A home is no other name: bob's /work/x.tsv is /home/bob/work/x.tsv, and so is its lock.
func TestHomesAndProtectedFiles(t *testing.T) {
	s, _ := startProtected(t, protected, func(o *setup) {
		o.rules = append(o.rules, lock.Rule{Match: "/out/*", Protection: &lock.Protection{Paths: []string{"/home/bob/$1.out"}}})
	})
	bob, c := s.as("bob"), s.as("phoneacc")
	bob.check("STOR", bob.upload("STOR x.tsv", "x"), "550 /work/x.tsv: protected by the lock /work/x_lock, which you do not hold")
	bob.check("STOR", bob.upload("STOR /y.out", "x"), "550 /y.out: protected by a lock outside of what this account sees")
	c.want("MKD /home/bob/work/x_lock", "257 *")
	c.store("/home/bob/work/x.tsv", "c")
	c.want("RMD /home/bob/work/x_lock", "250 *")
	bob.want("MKD x_lock", "257 *")
	bob.store("x.tsv", "bob")
	c.check("STOR", c.upload("STOR /home/bob/work/x.tsv", "x"), "550 *: protected by the lock /home/bob/work/x_lock, which you do not hold")
	s.wantContent("/home/bob/work/x.tsv", "bob")
}

func TestSessionsThatSpeakForTheHoldWrite(t *testing.T) {
	s, _ := startProtected(t, protected)
	a, b := s.as("phoneacc"), s.as("phoneacc")
	a.want("SITE LOCK AS job", "200 *")
	a.want("MKD /phone_lock", "257 *")
	b.check("STOR", b.upload("STOR /phone.tsv", "b"), "550 /phone.tsv: "+notHeld)
	b.want("SITE LOCK AS job", "200 *")
	b.store("/phone.tsv", "b")
	// Adoption: another token, so what the other connection began is over.
	finish := a.begun("STOR /phone.tsv", "a")
	b.want("MKD /phone_lock", "257 *")
	a.check("STOR", finish(), "550 /phone.tsv: protected by the lock /phone_lock, which was given back meanwhile")
	b.want("QUIT", "221 *")
	b.ended()
	a.want("SITE LOCK AS another", "200 *")
	const how = "which another connection of your account took: say SITE LOCK AS with the same word in each connection, before MKD"
	s.until("the holder's session has ended", func() bool { return strings.Contains(a.upload("STOR /phone.tsv", "a"), how) })
	a.want("SITE LOCK AS job", "200 *")
	a.store("/phone.tsv", "a")
	s.wantContent("/phone.tsv", "a")
}

// A job that lost its lock, and the next one of its account that took it over another connection, look the same: a
// connection for each command, no word.
func TestALostLockOfTheAccountDoesNotWrite(t *testing.T) {
	for _, policy := range []lock.WritePolicy{"", lock.WriteAsAccount} {
		t.Run(string(policy), func(t *testing.T) {
			s, _ := startProtected(t, protected, func(o *setup) {
				for i, r := range o.rules {
					if r.Protection != nil {
						o.rules[i].Protection = &lock.Protection{Paths: r.Protection.Paths, WriteAs: policy}
					}
				}
			})
			step := func(line string) string {
				c := s.as("phoneacc")
				defer c.ended()
				defer c.want("QUIT", "221 *")
				if strings.HasPrefix(line, "STOR") {
					return c.upload(line, "late")
				}
				return c.ask(line)
			}
			step("MKD /phone_lock")
			s.pass(time.Hour)       // the job is paused, and its lock ends
			step("MKD /phone_lock") // by another job of the account
			if got := step("STOR /phone.tsv"); strings.HasPrefix(got, "226 ") != (policy == lock.WriteAsAccount) {
				t.Errorf("the first job: %q", got)
			}
		})
	}
}
