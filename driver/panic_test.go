package driver

import (
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/afero"

	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// buggy is a tree in which much panics: all but files that are read, where nothing lies in /bugs; there, right after something was
// opened.
type buggy struct {
	*files.Tree
	server *server
	armed  bool
	open   atomic.Int32 // files below /bugs
}

type buggyFile struct {
	afero.File
	tree *buggy
}

func (f buggyFile) Read([]byte) (int, error) { panic("a bug") }
func (f buggyFile) Close() error             { f.tree.open.Add(-1); return f.File.Close() }

func (b *buggy) Space(string) (uint64, error) { panic("a bug") }

func (b *buggy) Open(name string) (afero.File, error) {
	f, err := b.Tree.Open(name)
	if !strings.HasPrefix(name, "/bugs/") {
		return f, err
	}
	b.open.Add(1)
	b.armed = strings.HasSuffix(name, "/begin")
	return buggyFile{f, b}, err
}

func (b *buggy) Resolve(name string) (string, error) {
	if b.armed {
		b.armed = false
		panic("a bug")
	}
	return b.Tree.Resolve(name)
}

func (b *buggy) Upload(name string, o files.UploadOptions) (*files.Upload, error) {
	if name == "/f" {
		panic("a bug")
	}
	up, err := b.Tree.Upload(name, o)
	if strings.HasPrefix(name, "/bugs/") {
		b.server.driver.settings.Store(nil) // what is asked next
	}
	return up, err
}

// startBuggy runs a server with such a tree.
func startBuggy(t *testing.T, changes ...func(*setup)) (*server, *buggy) {
	t.Helper()
	b := &buggy{}
	s := start(t, append(changes, func(o *setup) {
		o.wrap = func(tree *files.Tree) Tree { b.Tree = tree; return b }
	})...)
	b.server = s
	return s, b
}

// One client's bug, or ours, is no reason to end everybody's session.
func TestAPanicEndsNoSession(t *testing.T) {
	s, _ := startBuggy(t, protected)
	s.write("/f", "old")
	c := s.as("phoneacc")
	c.transcript(`
		C: AVBL
		S: 451 internal error
		C: MKD /phone_lock
		S: 257 *`)
	for _, path := range []string{"/f"} {
		c.check("STOR", c.upload("STOR "+path, "new"), "451 *internal error")
		if n := s.driver.CountTransfers(); n != 0 {
			t.Errorf("%d transfers go on", n)
		}
	}
	if got := c.fetch("RETR /f"); got != "old" {
		t.Errorf("afterwards: %q", got)
	}
	c.store("/other", "x")
	s.wantContent("/other", "x") // and no temporary is left
}

// After a panic a transfer is over like every other: its client is told, and nothing goes on.
func TestAPanicInTheMiddleOfADownload(t *testing.T) {
	for _, kind := range []string{"I", "A"} {
		s, _ := startBuggy(t, func(o *setup) { o.rules = []lock.Rule{{Match: "/idle/*", MaxIdle: time.Minute}} })
		s.write("/bugs/f", "content")
		c := s.as("phoneacc")
		c.want("MKD /idle/a", "257 *")
		c.want("TYPE "+kind, "200 *")
		c.data()
		c.want("RETR /bugs/f", "150 *")
		c.check("RETR", c.reply(), "451 *internal error")
		c.want("NOOP", "200 *")
		if n := s.driver.CountTransfers(); n != 0 {
			t.Errorf("TYPE %s: %d transfers go on", kind, n)
		}
		s.clock.Advance(time.Minute + time.Second)
		time.Sleep(2 * signOfLife) // something that goes on would be a sign of life
		s.pass(0)
		if s.held("/idle/a") {
			t.Errorf("TYPE %s: the transfer is watched still", kind)
		}
	}
}

// Whatever a transfer has opened when it panics, before the library knows of it, is closed, and its temporary file removed.
func TestAPanicInTheBeginningOfATransferLeavesNothing(t *testing.T) {
	s, b := startBuggy(t)
	s.write("/bugs/begin", "content")
	c := s.as("phoneacc")
	settings := s.driver.settings.Load()
	c.data().Close()
	c.want("RETR /bugs/begin", "451 *internal error")
	c.data().Close()
	c.want("STOU /bugs/new", "451 *internal error")
	s.driver.settings.Store(settings)
	if n := b.open.Load(); n != 0 {
		t.Errorf("%d files are open", n)
	}
	if names := onDisk(t, filepath.Join(s.root, "bugs")); len(names) != 1 {
		t.Errorf("there is %q", names)
	}
}
