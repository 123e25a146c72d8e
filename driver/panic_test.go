package driver

import (
	"context"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/spf13/afero"

	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// buggy is a tree in which much panics.
type buggy struct{ Tree }

func (buggy) Space(string) (uint64, error) { panic("a bug") }

func (buggy) Upload(string, files.UploadOptions) (*files.Upload, error) { panic("a bug") }

func (buggy) Published(context.Context, lock.Publication) error { panic("a bug") }

// One client's bug, or ours, is no reason to end everybody's session.
func TestAPanicEndsNoSession(t *testing.T) {
	s := start(t)
	s.write("/f", "old")
	s.driver.tree = buggy{s.driver.tree}
	c := s.as("phoneacc")
	c.transcript(`
		C: AVBL
		S: 451 internal error
		C: MKD /locks/a
		S: 257 *`)
	c.check("STOR", c.upload("STOR /f", "new"), "451 internal error")
	s.wantContent("/f", "old")
	if got := c.fetch("RETR /f"); got != "old" {
		t.Errorf("afterwards: %q", got)
	}
}

// unreadable is a file system whose files panic when they are read.
type unreadable struct{ Tree }

func (u unreadable) Open(name string) (afero.File, error) {
	f, err := u.Tree.Open(name)
	return unreadableFile{f}, err
}

type unreadableFile struct{ afero.File }

func (unreadableFile) Read([]byte) (int, error) { panic("a bug") }

// After a panic a transfer is over like every other: its client is told, and nothing goes on.
func TestAPanicInTheMiddleOfADownload(t *testing.T) {
	for _, kind := range []string{"I", "A"} {
		s := start(t, func(o *setup) { o.rules = []lock.Rule{{Match: "/idle/*", MaxIdle: time.Minute}} })
		s.write("/f", "content")
		s.driver.tree = unreadable{s.driver.tree}
		c := s.as("phoneacc")
		c.want("MKD /idle/a", "257 *")
		c.want("TYPE "+kind, "200 *")
		c.data()
		c.want("RETR /f", "150 *")
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

// panicky is a tree that panics right after it has opened something.
type panicky struct {
	*files.Tree
	server *server
	armed  bool
}

func (p *panicky) Open(name string) (afero.File, error) {
	f, err := p.Tree.Open(name)
	p.armed = strings.HasSuffix(name, "/bug")
	return f, err
}

func (p *panicky) Resolve(name string) (string, error) {
	if p.armed {
		p.armed = false
		panic("a bug")
	}
	return p.Tree.Resolve(name)
}

func (p *panicky) Upload(name string, o files.UploadOptions) (*files.Upload, error) {
	up, err := p.Tree.Upload(name, o)
	p.server.driver.settings.Store(nil) // what is asked next
	return up, err
}

func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(all)
}

// Whatever a transfer has opened when it panics, before the library knows of it, is closed, and its temporary file removed.
func TestAPanicInTheBeginningOfATransferLeavesNothing(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // which closes files that nobody has any more
	p := &panicky{}
	s := start(t, func(o *setup) {
		o.wrap = func(tree *files.Tree) Tree { p.Tree = tree; return p }
	})
	p.server = s
	s.write("/d/bug", "content")
	c := s.as("phoneacc")
	settings := s.driver.settings.Load()
	begin := 0
	for i := range 50 {
		c.data().Close()
		c.want("RETR /d/bug", "451 *internal error")
		c.data().Close()
		c.want("STOU /d", "451 *internal error")
		s.driver.settings.Store(settings)
		if i == 4 { // pools and the like are filled
			begin = descriptors(t)
		}
	}
	if end := descriptors(t); end > begin+5 {
		t.Errorf("%d descriptors after 5 panics of each kind, %d after 50", begin, end)
	}
	if names := onDisk(t, filepath.Join(s.root, "d")); len(names) != 1 {
		t.Errorf("there is %q", names)
	}
}

func TestAPanicInTheMiddleOfAPublication(t *testing.T) {
	s := start(t, protected, func(o *setup) { o.publications = buggy{} })
	c := s.as("phoneacc")
	c.want("MKD /phone_lock", "257 *")
	c.check("STOR", c.upload("STOR /phone.tsv", "new"), "451 *internal error")
	c.want("NOOP", "200 *")
	if n := s.driver.CountTransfers(); n != 0 {
		t.Errorf("%d transfers go on", n)
	}
	c.store("/other", "x")
	s.wantContent("/other", "x") // and no temporary is left
}
