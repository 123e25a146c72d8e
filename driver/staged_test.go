package driver

import (
	"bytes"
	"crypto/md5"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/files"
	"github.com/ftplockd/ftplockd/lock"
)

// release has one lock of a group of files, published together.
func groupRelease(s *setup) {
	s.rules = []lock.Rule{
		{Match: "/locks/*", MaxAge: 6 * time.Minute, Protection: &lock.Protection{Paths: []string{"/data/$1/**"}, Commit: lock.CommitRelease}},
		{Match: "/gone/*", MaxAge: 6 * time.Minute, OnDisconnect: lock.ReleaseOnDisconnect, Protection: &lock.Protection{Paths: []string{"/gdata/$1"}, Commit: lock.CommitRelease}},
	}
}

// look is what a session sees of the files below /data/x, by every command that looks.
func (c *conn) look() string {
	c.t.Helper()
	var b strings.Builder
	for l := range strings.Lines(c.fetch("NLST /data/x")) {
		name := strings.TrimSpace(l)
		if strings.HasSuffix(name, "/sub") {
			continue
		}
		content := c.fetch("RETR " + name)
		c.want("SIZE "+name, fmt.Sprintf("213 %d", len(content)))
		if r := c.ask("MLST " + name); !strings.Contains(r, fmt.Sprintf("size=%d;", len(content))) {
			c.t.Errorf("MLST %s: %s", name, r)
		}
		fmt.Fprintf(&b, "%s=%s ", strings.TrimPrefix(name, "/data/x/"), content)
	}
	return strings.TrimSpace(b.String())
}

func (c *conn) sees(want string) {
	c.t.Helper()
	if got := c.look(); got != want {
		c.t.Errorf("sees %q, want %q", got, want)
	}
}

func startStaged(t *testing.T, changes ...func(*setup)) (*server, *kept) {
	t.Helper()
	s, k := startProtected(t, append([]func(*setup){groupRelease}, changes...)...)
	s.mkdir("/data/x/sub")
	s.write("/data/x/a", "old a")
	s.write("/data/x/b", "old b")
	s.write("/data/x/c", "old c")
	return s, k
}

const (
	wholeOld = "a=old a b=old b c=old c"
	wholeNew = "a=new a+ c2=old c d=new d"
)

// prepare makes one change of each kind.
func (c *conn) prepare() {
	c.t.Helper()
	c.want("TYPE I", "200 *")
	c.store("/data/x/a", "first")
	c.store("/data/x/a", "new a")
	c.check("APPE", c.upload("APPE /data/x/a", "+"), "226 *")
	c.want("DELE /data/x/b", "250 *")
	c.want("RNFR /data/x/c", "350 *")
	c.want("RNTO /data/x/c1", "250 *")
	c.want("RNFR /data/x/c1", "350 *")
	c.want("RNTO /data/x/c2", "250 *")
	c.store("/data/x/d", "new d")
	c.store("/data/x/sub/deep", "deep")
}

func TestChangesAreSeenByTheHolderOnlyUntilTheRelease(t *testing.T) {
	for _, mode := range [][]func(*setup){nil, {plainLocks}} {
		s, published := startStaged(t, mode...)
		holder, other := s.as("boss"), s.as("other")
		other.want("TYPE I", "200 *")
		holder.want("MKD /locks/x", "257 *")
		holder.prepare()
		holder.sees(wholeNew)
		other.sees(wholeOld)
		other.want("SIZE /data/x/b", "213 5")
		holder.want("SIZE /data/x/b", "550 /data/x/b: no such file or directory")
		holder.want("RETR /data/x/b", "425 *")
		holder.want("DELE /data/x/b", "550 *")
		holder.want("XSHA256 /data/x/d", "250 *")
		other.want("XSHA256 /data/x/d", "550 *")
		holder.want("MFMT 20200101000000 /data/x/d", "213 *")
		holder.want("MFMT 20200101000000 /data/x/a", "213 *")
		holder.want("MDTM /data/x/d", "213 20200101000000")
		holder.want("SITE CHMOD 600 /data/x/d", "200 *")
		holder.want("MDTM /data/x/d", "213 20200101000000")
		if r := holder.fetch("LIST /data/x"); !strings.Contains(r, "-rw-------") || !strings.Contains(r, "2020 d") {
			t.Errorf("LIST: %s", r)
		}
		holder.want("REST 4", "350 *")
		holder.check("STOR after REST", holder.upload("STOR /data/x/d", "d"), "226 *")
		holder.want("MKD /data/x/dir", "257 *") // directories are made at once
		holder.want("RMD /data/x/dir", "250 *")
		if got := published.lines(); !fits("*directory made*directory removed", got) || strings.Count(got, "\n") != 1 {
			t.Errorf("published before the release: %s", got)
		}
		holder.want("RMD /locks/x", "250 /locks/x released")
		holder.sees(wholeNew)
		other.sees(wholeNew)
		s.wantContent("/data/x/sub/deep", "deep")
		want := `/locks/x # boss /data/x/a 6 * time or mode set
/locks/x # boss /data/x/b 0  removed
/locks/x # boss /data/x/c 0  renamed to /data/x/c1
/locks/x # boss /data/x/c1 0  renamed to /data/x/c2
/locks/x # boss /data/x/c2 5 * renamed from /data/x/c1
/locks/x # boss /data/x/d 5 *
/locks/x # boss /data/x/sub/deep 4 *`
		if got := published.lines(); !fits(want, got) {
			t.Errorf("published\n%s\nwant\n%s", got, want)
		}
		holder.want("DELE /data/x/a", "550 *: protected by the lock /locks/x, which you do not hold")
	}
}

func TestWhoSpeaksForTheHoldSeesAndPublishes(t *testing.T) {
	s, _ := startStaged(t)
	first := s.as("phoneacc")
	first.want("MKD /locks/x", "257 *")
	first.prepare()
	second := s.as("phoneacc")
	second.want("TYPE I", "200 *")
	second.sees(wholeOld)
	first.want("QUIT", "221 *")
	first.ended()
	s.until("the session has ended", func() bool { return second.look() == wholeNew })
	second.store("/data/x/d", "more")
	second.want("RMD /locks/x", "250 *")
	s.wantContent("/data/x/d", "more")
	s.wantContent("/data/x/a", "new a+")
}

func TestWhatIsNotGivenBackIsThrownAway(t *testing.T) {
	for how, end := range map[string]func(s *server, c *conn){
		"expired": func(s *server, c *conn) {
			s.pass(6*time.Minute + time.Second)
			c.want("RMD /locks/x", "550 /locks/x: taken away *: older than 6m0s")
		},
		"over, not yet reaped": func(s *server, c *conn) {
			s.clock.Advance(6*time.Minute + time.Second)
			c.want("RMD /locks/x", "550 /locks/x: taken away *: older than 6m0s")
			s.pass(0)
		},
		"broken": func(s *server, _ *conn) { s.as("boss").want("SITE LOCK BREAK /locks/x", "200 *") },
		"broken by the host": func(s *server, _ *conn) {
			if err := s.table.Break(s.t.Context(), "/locks/x", 0, lock.Owner{}, ""); err != nil {
				s.t.Error(err)
			}
		},
	} {
		t.Run(how, func(t *testing.T) {
			s, published := startStaged(t)
			c := s.as("phoneacc")
			c.want("MKD /locks/x", "257 *")
			c.prepare()
			end(s, c)
			c.sees(wholeOld)
			other := s.as("other")
			other.want("MKD /locks/x", "257 *")
			if how == "broken by the host" {
				if err := s.driver.Sweep(t.Context()); err != nil {
					t.Error(err)
				}
			}
			other.want("RMD /locks/x", "250 *")
			s.wantContent("/data/x/a", "old a")
			s.wantContent("/data/x/sub/deep", "(none)")
			if got := published.lines(); got != "" {
				t.Errorf("published: %s", got)
			}
			if n := s.driver.stages.count.Load(); n != 0 {
				t.Errorf("%d versions are left", n)
			}
		})
	}
}

// The same job on another connection begins anew: what the first one prepared was read under a token that is over.
func TestAdoptionThrowsAway(t *testing.T) {
	s, _ := startStaged(t)
	a, b := s.as("phoneacc"), s.as("phoneacc")
	a.want("SITE LOCK AS job", "200 *")
	b.want("SITE LOCK AS job", "200 *")
	b.want("TYPE I", "200 *")
	a.want("MKD /locks/x", "257 *")
	a.prepare()
	b.sees(wholeNew)
	b.want("MKD /locks/x", `257 "/locks/x" locked, token *, expires in 6m0s, adopted from token *`)
	a.sees(wholeOld)
	b.sees(wholeOld)
	b.want("RMD /locks/x", "250 *")
	b.sees(wholeOld)
	if err := s.driver.Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	s.wantContent("/data/x/a", "old a")
}

func TestADisconnectThatEndsTheLockThrowsAway(t *testing.T) {
	s, _ := startStaged(t)
	s.write("/gdata/f", "old")
	c := s.as("phoneacc")
	c.want("MKD /gone/f", "257 *")
	c.store("/gdata/f", "new")
	c.reset()
	s.alone()
	s.wantContent("/gdata/f", "old")
}

func TestRenamesAcrossTheBorderAreRefused(t *testing.T) {
	s, _ := startStaged(t)
	s.write("/free", "free")
	s.write("/data/y/f", "y")
	c := s.as("phoneacc")
	c.want("MKD /locks/x", "257 *")
	c.want("MKD /locks/y", "257 *")
	for _, names := range [][2]string{{"/free", "/data/x/new"}, {"/data/x/a", "/new"}, {"/data/x/a", "/data/y/new"}} {
		c.want("RNFR "+names[0], "350 *")
		c.want("RNTO "+names[1], "550 "+names[1]+": cannot be renamed into or out of what a lock with commit = release protects")
	}
	c.want("RNFR /data/x/sub", "350 *")
	c.want("RNTO /data/x/sub2", "550 *: only files are prepared under a lock with commit = release")
	c.want("RNFR /data", "350 *")
	c.want("RNTO /other", "550 *: there are protected files below it, or would be")
	c.want("RMD /locks/x", "250 *")
	c.want("RMD /locks/y", "250 *")
	s.wantContent("/data/x/a", "old a")
}

// A directory with nothing in it but what is prepared stays where it is, too.
func TestADirectoryWithPreparedFilesIsNotMoved(t *testing.T) {
	s, _ := startStaged(t)
	s.mkdir("/gdata")
	c := s.as("phoneacc")
	c.want("MKD /gone/f", "257 *")
	c.store("/gdata/f", "new")
	c.want("RNFR /gdata", "350 *")
	c.want("RNTO /moved", "550 *: there are protected files below it, or would be")
	c.want("RMD /gdata", "550 *")
	c.want("RMD /gone/f", "250 *")
	s.wantContent("/gdata/f", "new")
}

func TestAFailureBeforeTheRecordKeepsTheLock(t *testing.T) {
	s, published := startStaged(t)
	c, other := s.as("phoneacc"), s.as("other")
	other.want("TYPE I", "200 *")
	c.want("MKD /locks/x", "257 *")
	c.prepare()
	// A program on the host has made a directory of that name.
	s.mkdir("/data/x/c2/in the way")
	c.want("RMD /locks/x", "451 /locks/x: nothing is published, and the lock is kept: is a directory")
	s.wantContentOnly("/data/x/a", "old a")
	if !s.held("/locks/x") || published.lines() != "" {
		t.Error("the lock is gone, or something published")
	}
	if err := os.RemoveAll(filepath.Join(s.root, "data/x/c2")); err != nil {
		t.Fatal(err)
	}
	c.sees(wholeNew)
	c.want("RMD /locks/x", "250 *")
	other.sees(wholeNew)
}

func (s *server) wantContentOnly(name, want string) {
	s.t.Helper()
	if got := s.content(name); got != want {
		s.t.Errorf("%s holds %q, want %q", name, got, want)
	}
}

// What fails after the record is done later, before anything else that is protected changes.
func TestAFailureAfterTheRecordIsMadeGood(t *testing.T) {
	s, _ := startStaged(t)
	c, other := s.as("phoneacc"), s.as("other")
	other.want("TYPE I", "200 *")
	c.want("MKD /locks/x", "257 *")
	c.prepare()
	// Between the record and the renames a program on the host makes a directory of a name that is needed.
	s.driver.layout.RLock()
	c.send("RMD /locks/x\r\n")
	s.until("the record is there", func() bool {
		records, _ := filepath.Glob(filepath.Join(s.state, "uploads", "commit-*"))
		return len(records) == 1
	})
	s.mkdir("/data/x/c2")
	s.driver.layout.RUnlock()
	c.check("RMD", c.reply(), "451 /locks/x: published, but not all of it is in place yet: try again; the lock is kept")
	if got := c.fetch("RETR /data/x/a"); got != "new a+" {
		t.Errorf("the holder reads %q", got)
	}
	other.want("MKD /gone/f", "257 *")
	s.mkdir("/gdata")
	other.check("STOR", other.upload("STOR /gdata/f", "x"), "451 /gdata/f: an earlier publication is not in place yet, try again")
	c.check("STOR", c.upload("STOR /data/x/a", "x"), "451 *")
	c.want("RMD /locks/x", "451 *")
	if err := os.Remove(filepath.Join(s.root, "data/x/c2")); err != nil {
		t.Fatal(err)
	}
	if err := s.driver.Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	other.check("STOR", other.upload("STOR /gdata/f", "x"), "226 *")
	c.want("RMD /locks/x", "250 *")
	other.sees(wholeNew)
}

func TestTooManyPreparedChangesAreRefused(t *testing.T) {
	st := newStages()
	title := lock.Title{Lock: "/l", Token: 7}
	for i := range maxStaged {
		if err := st.put(title, &version{path: lock.Name(fmt.Sprint("/f", i))}); err != nil {
			t.Fatal(err)
		}
	}
	if err := st.put(title, &version{path: "/more"}); !errors.Is(err, errTooManyStaged) {
		t.Error(err)
	}
	if err := st.put(lock.Title{Lock: "/m", Token: 8}, &version{path: "/more"}); err != nil {
		t.Error(err)
	}
	if err := errors.Join(st.drop(7), st.drop(8), st.drop(9)); err != nil || st.count.Load() != 0 || len(st.byPath)+len(st.byDir)+len(st.byToken) != 0 {
		t.Error("something is left", err)
	}
}

// Readers that open one file after the other never see an older version after a newer one.
func TestReadersNeverGoBack(t *testing.T) {
	s, _ := startStaged(t)
	s.write("/data/x/a", "0")
	s.write("/data/x/b", "0")
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		c := s.as("other")
		c.want("TYPE I", "200 *")
		readers.Go(func() {
			for last := ""; ; {
				select {
				case <-stop:
					return
				default:
				}
				for _, name := range []string{"/data/x/a", "/data/x/b"} {
					got := c.fetch("RETR " + name)
					if len(got) < len(last) {
						t.Errorf("%d after %d", len(got), len(last))
					}
					last = got
				}
			}
		})
	}
	w := s.as("phoneacc")
	for i := range 20 {
		w.want("MKD /locks/x", "257 *")
		w.store("/data/x/a", strings.Repeat("x", i+2))
		w.store("/data/x/b", strings.Repeat("x", i+2))
		w.want("RMD /locks/x", "250 *")
	}
	close(stop)
	readers.Wait()
}

// Whoever looks while a publication is being put in place waits, and sees it.
func TestLookingWaitsForAPublicationUnderWay(t *testing.T) {
	s, _ := startStaged(t)
	type asked struct {
		c       *conn
		command string
		want    string
	}
	all := []asked{
		{s.as("other"), "SIZE /data/x/a", "213 9"},
		{s.as("other"), "STAT /data/x", "*new in place*"},
		{s.as("other"), "XMD5 /data/x/a", "250 " + fmt.Sprintf("%X", md5.Sum([]byte("in place!")))},
		{s.as("other"), "MLST /data/x/a", "*size=9;*"},
	}
	s.driver.layout.Lock() // as a publication does
	for _, a := range all {
		a.c.send(a.command + "\r\n")
	}
	s.until("all of them wait at the gate", func() bool {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		return bytes.Count(stacks, []byte("sync.(*RWMutex).RLock")) >= len(all)
	})
	s.write("/data/x/a", "in place!")
	s.write("/data/x/new in place", "")
	s.driver.layout.Unlock()
	for _, a := range all {
		if got := a.c.reply(); !fits(a.want, got) {
			t.Errorf("%s: %s", a.command, got)
		}
	}
}

// What a start has redone is written down with the hold that it was published by.
func TestWhatTheStartHasRedoneIsWrittenDown(t *testing.T) {
	title := lock.Title{Lock: "/l \"\xff", Token: 42, Owner: lock.Owner{Account: "a b", Address: "::1", Session: 3<<32 | 17, Nonce: "n"}}
	got, err := parseLabel(label(title))
	if err != nil || got != title {
		t.Errorf("%+v, %v", got, err)
	}
	k := &kept{}
	s := &Server{publications: k, log: slog.New(slog.DiscardHandler), tree: interruptedTree(t, label(title)), context: t.Context()}
	if err := s.tellRedone(); err != nil {
		t.Fatal(err)
	}
	want := "/l \"\xff 42 a b /f 3 abcd done at the next start\n/l \"\xff 42 a b /g 0  removed, done at the next start"
	if got := k.lines(); got != want {
		t.Errorf("%q", got)
	}
}

// interruptedTree is a tree whose server was interrupted in the middle of a commit.
func interruptedTree(t *testing.T, label string) *files.Tree {
	t.Helper()
	root, state := t.TempDir(), t.TempDir()
	tree, err := files.Open(root, files.Options{State: state})
	if err != nil {
		t.Fatal(err)
	}
	up, err := tree.Upload("/f", files.UploadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	changes := []files.Change{{Name: "/f", Upload: up, Bytes: 3, SHA256: "abcdef"}, {Name: "/g", Note: "removed"}}
	// The gate opens when the record is there; what comes after it is what a crash would have left undone.
	if err := tree.Commit(label, changes, &keepRecord{t: t, state: state}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(tree.Close(), os.Rename(filepath.Join(state, "copy"), filepath.Join(state, "commit-aaaaaaaaaaaaaaaaaaaaaaaaaa"))); err != nil {
		t.Fatal(err)
	}
	if tree, err = files.Open(root, files.Options{State: state}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tree.Close() })
	return tree
}

// keepRecord copies the record of a commit when it counts.
type keepRecord struct {
	t     *testing.T
	state string
}

func (k *keepRecord) Lock() {
	names, _ := filepath.Glob(filepath.Join(k.state, "commit-*"))
	b, err := os.ReadFile(strings.Join(names, ""))
	if err == nil {
		err = os.WriteFile(filepath.Join(k.state, "copy"), b, 0o600)
	}
	if err != nil {
		k.t.Error(err)
	}
}

func (k *keepRecord) Unlock() {}
