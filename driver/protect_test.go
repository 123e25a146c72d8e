package driver

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/event"
	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

// kept reads the publications in a log.
type kept struct {
	log  *locktest.Memory
	read int // so many records were looked at
}

// lines are the publications since the last call: lock, token, account, file, bytes, the begin of the digest, note.
func (k *kept) lines() string {
	all := k.log.Records()
	var lines []string
	for _, r := range all[k.read:] {
		if p := r.File; r.Kind == lock.Published {
			lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %d %s %s %d %.4s %s", r.Hold.Name, r.Hold.Token, r.By.Account, p.Path, p.Bytes, p.SHA256, r.Note)))
		}
	}
	k.read = len(all)
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
	s := start(t, changes...)
	return s, &kept{log: s.memory}
}

const notHeld = "protected by the lock /phone_lock, which you do not hold"

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

// What was looked at by one name and leads elsewhere by now is not changed.
func TestANameThatLeadsElsewhereByNowIsNotChanged(t *testing.T) {
	s, _ := startProtected(t, protected)
	s.mkdir("/dir")
	s.link("dir", "/way")
	c := s.as("phoneacc")
	client := c.session()
	ran := false
	err := client.changing([]lock.Name{"/way/f"}, func([]lock.Title) error { ran = true; return nil })
	if !errors.Is(err, errMovedLink) || ran {
		t.Errorf("%v, ran: %v", err, ran)
	}
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

func TestEveryChangeOfAProtectedFileIsRefused(t *testing.T) {
	s, published := startProtected(t, protected)
	refusals := func(why string) string {
		return strings.ReplaceAll(`
		boss STOR /phone.tsv <<< new => 550 *: WHY
		boss APPE /phone.tsv <<< new => 550 *: WHY
		boss STOR //dir/..//phone.tsv <<< new => 550 *: WHY
		boss STOU /phone.d/x.dat <<< new => 550 *: WHY
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
	if got := published.lines(); got != "" {
		t.Errorf("published: %s", got)
	}
}

func TestTheHolderChangesProtectedFilesAndThatIsWrittenDown(t *testing.T) {
	s, published := startProtected(t, protected)
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
	if got := published.lines(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestAnUploadIsNotPublishedWhenItsHoldHasEnded(t *testing.T) {
	s, published := startProtected(t, protected)
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
	if got := published.lines(); got != "" {
		t.Errorf("published: %s", got)
	}
}

func TestChangesOfProtectedFilesAreTold(t *testing.T) {
	var mu sync.Mutex
	var told []string
	s, _ := startProtected(t, protected, func(o *setup) {
		o.events = func(batch []event.Event) {
			mu.Lock()
			defer mu.Unlock()
			for _, e := range batch {
				switch e.Kind {
				case event.Protect, event.Discard:
					told = append(told, fmt.Sprintf("%s %s %s%s", e.Kind, e.Path, e.Lock, e.Cause))
				case event.Publish:
					told = append(told, fmt.Sprintf("%s %s %s %d %s %.4s", e.Kind, e.Path, e.Lock, e.Token, e.Holder, e.SHA256))
				}
			}
		}
	})
	s.play(t, `
		- write /phone.tsv old
		a DELE /phone.tsv => 550 *
		a MKD /phone_lock => 257 *
		a STOR /phone.tsv <<< late ...
		- break /phone_lock
		a => 550 *
		- file /phone.tsv old
		boss MKD /phone_lock => 257 *
		boss STOR /phone.tsv <<< abc => 226 *
		boss STOR /free <<< abc => 226 *`)
	const want = "protect /phone.tsv /phone_lock\ndiscard /phone.tsv protected\nprotect /phone.tsv /phone_lock\n" +
		"publish /phone.tsv /phone_lock 2 boss@127.0.0.1 ba78\npublish /free  0  "
	s.until("all is told", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(told) >= 5
	})
	mu.Lock()
	defer mu.Unlock()
	if got := strings.Join(told, "\n"); got != want {
		t.Errorf("told\n%s\nwant\n%s", got, want)
	}
}

// An upload that began without protection is no way around: a reload makes its name a protected one, a rename of its directory does, or a
// program on the host puts a link in the place of that.
func TestAnUploadWhoseNameBecomesProtected(t *testing.T) {
	s, _ := startProtected(t, protected)
	const refused = "protected by the lock /phone_lock, which you do not hold*"
	s.play(t, `
		- mkdir /in
		a STOR /in/f.dat <<< x ...
		b RNFR /in => 350 *
		b RNTO /phone.d => 250 *
		a => 550 /in/f.dat: `+refused+`
		- file /phone.d/f.dat (none)
		- write /phone.d/f.dat old
		- mkdir /in
		a STOR /in/f.dat <<< x ...
		- rename /in /away
		- link /in phone.d
		a => 451 /in/f.dat: a directory above it was moved meanwhile
		- file /phone.d/f.dat old
		- file /away/f.dat (none)
		- remove /in`)

	// The directory is renamed when the publication has looked at the name, and not yet at the gate.
	s.mkdir("/in2")
	c := s.as("phoneacc")
	d := c.begun("STOR /in2/g.dat", "x")
	s.driver.layout.Lock()
	d.Close()
	s.until("it is being published", func() bool { return somewhere("placeProtected", "(*RWMutex).RLock") })
	err := errors.Join(os.RemoveAll(filepath.Join(s.root, "phone.d")), s.tree.Rename("/in2", "/phone.d"))
	s.driver.layout.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	c.check("STOR", c.reply(), "550 /in2/g.dat: "+refused)
	s.wantContent("/phone.d/g.dat", "(none)")

	d = c.begun("STOR /f.new", "x")
	rules, err := lock.NewRules([]lock.Rule{{Match: "**/*_lock", Protection: &lock.Protection{Paths: []string{"$1/$2.new"}}}})
	if err != nil {
		t.Fatal(err)
	}
	s.table.SetRules(rules)
	d.Close()
	c.check("STOR", c.reply(), "550 /f.new: protected by the lock /f_lock, which you do not hold")
}

func TestDirectoriesAboveProtectedFilesStay(t *testing.T) {
	s, _ := startProtected(t, protected)
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
	// Where there is too much to look at, nobody knows.
	for i := range maxBelow + 1 {
		if err := os.Mkdir(filepath.Join(s.root, "plain", fmt.Sprint(i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s.play(t, rename("/plain", "/moved", "550 /moved: there is too much below it to look for protected files"))
}

// Names with the characters of patterns guard themselves only. A home is no other name: bob's /work/x.tsv is /home/bob/work/x.tsv, and so
// is its lock.
func TestWhichFileALockProtects(t *testing.T) {
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

// STOU whose name is taken does not move from the name that its lock protects to one that it does not.
func TestStouStaysUnderItsLock(t *testing.T) {
	s, k := startProtected(t, protected)
	c := s.as("phoneacc")
	c.want("MKD /phone_lock", "257 *")
	data := c.data()
	c.want("STOU /phone.tsv", "150 FILE: /phone.tsv")
	io.WriteString(data, "new")
	s.write("/phone.tsv", "other")
	data.Close()
	c.check("STOU", c.reply(), "550 /phone.tsv.1: not protected by the same lock as the name that was taken meanwhile")
	s.wantContent("/phone.tsv", "other")
	if _, err := os.Lstat(filepath.Join(s.root, "phone.tsv.1")); err == nil || k.lines() != "" {
		t.Error("published")
	}
}
