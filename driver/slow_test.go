package driver

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/spf13/afero"

	"github.com/ftplockd/ftplockd/internal/files"
)

// hanging is a tree in which calls below /hung wait, as on a network mount whose server is gone, and so does the removal of
// /stuck.tsv.
type hanging struct {
	*files.Tree
	asked, answer chan struct{}
}

func (h *hanging) wait(name string) {
	if strings.HasPrefix(name, "/hung/") {
		h.asked <- struct{}{}
		<-h.answer
	}
}

func (h *hanging) Open(name string) (afero.File, error)   { h.wait(name); return h.Tree.Open(name) }
func (h *hanging) Lstat(name string) (fs.FileInfo, error) { h.wait(name); return h.Tree.Lstat(name) }

func (h *hanging) OpenDirectory(name string) (afero.File, error) {
	h.wait(name)
	return h.Tree.OpenDirectory(name)
}

func (h *hanging) Mkdir(name string, perm fs.FileMode) error {
	h.wait(name)
	return h.Tree.Mkdir(name, perm)
}

func (h *hanging) Resolve(name string) (string, error) {
	if strings.HasPrefix(name, "/hung/deep/") {
		h.wait(name)
	}
	return h.Tree.Resolve(name)
}

func (h *hanging) RemoveFile(name string, check files.Check) error {
	if name == "/stuck.tsv" {
		h.wait("/hung" + name)
	}
	return h.Tree.RemoveFile(name, check)
}

// While commands hang on a mount, other sessions go on. A directory is not renamed while the removal of a protected file hangs.
func TestAHangingMountDelaysNoOtherSession(t *testing.T) {
	h := &hanging{asked: make(chan struct{}), answer: make(chan struct{})}
	s := start(t, protected, func(o *setup) {
		o.wrap = func(tree *files.Tree) Tree { h.Tree = tree; return h }
	})
	s.driver.bounds.changes = 200 * time.Millisecond
	s.mkdir("/plain")
	s.write("/stuck.tsv", "x")
	var hung []*conn
	for _, command := range []string{"MDTM /hung/f", "LIST /hung/d", "RETR /hung/f", "STAT /hung/d", "MKD /hung/new", "CWD /hung/deep/d", "DELE /stuck.tsv"} {
		c := s.as("phoneacc")
		if strings.HasPrefix(command, "DELE") {
			c.want("MKD /stuck_lock", "257 *")
		}
		defer c.data().Close()
		c.send(command + "\r\n")
		hung = append(hung, c)
		<-h.asked
	}
	boss, c := s.as("boss"), s.as("phoneacc")
	c.want("MKD /free_lock", "257 *")
	boss.want("RNFR /plain", "350 *")
	boss.send("RNTO /elsewhere\r\n")
	for i := range 20 {
		lock := fmt.Sprintf("/locks/%d", i%7)
		c.want("MKD "+lock, "257 *")
		c.store("/free.tsv", "x")
		c.want("MDTM /free.tsv", "213 *")
		c.want("RMD "+lock, "250 *")
	}
	boss.check("RNTO", boss.reply(), "450 /elsewhere: protected files are being changed: try again")
	go func() { // a command may call the tree again
		for range h.asked {
		}
	}()
	close(h.answer)
	for _, c := range hung {
		c.reply()
	}
	s.halt()
	close(h.asked)
}
