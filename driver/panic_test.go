package driver

import (
	"io/fs"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/afero"

	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// buggy is a tree whose methods panic: Space, Upload of /f, Stat of /bugs/begin, and the reading of files in /bugs.
type buggy struct {
	*files.Tree
	open atomic.Int32 // files in /bugs
}

type buggyFile struct {
	afero.File
	tree *buggy
}

func (f buggyFile) Read([]byte) (int, error) { panic("a bug") }
func (f buggyFile) Stat() (fs.FileInfo, error) {
	if strings.HasSuffix(f.Name(), "begin") {
		panic("a bug")
	}
	return f.File.Stat()
}
func (f buggyFile) Close() error { f.tree.open.Add(-1); return f.File.Close() }

func (b *buggy) Space(string) (uint64, error) { panic("a bug") }

func (b *buggy) Open(name string) (afero.File, error) {
	f, err := b.Tree.Open(name)
	if !strings.HasPrefix(name, "/bugs/") {
		return f, err
	}
	b.open.Add(1)
	return buggyFile{f, b}, err
}

func (b *buggy) Upload(name string, o files.UploadOptions) (*files.Upload, error) {
	if name == "/f" {
		panic("a bug")
	}
	return b.Tree.Upload(name, o)
}

// A panic in a command or in a transfer ends no session. The client gets a reply, and no file stays open.
func TestAPanicEndsNoSession(t *testing.T) {
	b := &buggy{}
	s := start(t, func(o *setup) {
		o.rules = []lock.Rule{{Match: "/idle/*", MaxIdle: time.Minute}}
		o.wrap = func(tree *files.Tree) Tree { b.Tree = tree; return b }
	})
	s.play(t, `
		- write /f old
		- write /bugs/f content
		- write /bugs/begin content
		a MKD /idle/a => 257 *
		a AVBL => 451 internal error
		a STOR /f <<< new => 451 *internal error
		a RETR /bugs/begin => 451 *internal error
		a RETR /bugs/f => 451 *internal error
		a TYPE I => 200 *
		a RETR /bugs/f => 451 *internal error
		a RETR /f => 226 * >>> old
		a STOR /other <<< x => 226 *
		- file /other x
		a NOOP => 200 *
		- late 61s`)
	if n := s.driver.CountTransfers(); n != 0 {
		t.Errorf("%d transfers go on", n)
	}
	if n := b.open.Load(); n != 0 {
		t.Errorf("%d files are open", n)
	}
	time.Sleep(2 * watchEvery) // the watch of a transfer would record a sign of life
	s.play(t, "- pass 0s\n- free /idle/a")
}

// A panic right after an upload has replaced its target does not make the upload one that was discarded.
func TestAPanicAfterTheReplacementOfAFile(t *testing.T) {
	var events notebook
	s := start(t, events.ofFiles, func(o *setup) {
		o.rules = []lock.Rule{{Match: "/f_lock", Protection: &lock.Protection{Paths: []string{"/f"}}}}
	})
	s.write("/f", "old")
	c := s.as("phoneacc")
	c.want("MKD /f_lock", "257 *")
	d := c.begun("STOR /f", "new")
	client := c.session()
	jobs := client.jobs
	bug := func() { client.jobs = nil }
	s.asked.Store(&bug) // right before the file is placed
	d.Close()
	c.check("STOR", c.reply(), "451 *internal error")
	s.asked.Store(nil)
	client.jobs = jobs
	s.wantContent("/f", "new")
	events.await(t, "publish /f", 1)
}
