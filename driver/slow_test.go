package driver

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/spf13/afero"

	"github.com/ftplockd/ftplockd/internal/files"
)

// hanging is a tree in which nothing below /hung answers, as below a network mount whose server has gone, and /stuck.tsv cannot
// be removed.
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

// A look, a listing, a download, a new directory and the removal of a protected file hang. Nobody else waits, not even
// while a directory is to be renamed, which must not happen during a change of a protected file.
func TestNobodyElseWaitsForAMountThatHangs(t *testing.T) {
	h := &hanging{asked: make(chan struct{}), answer: make(chan struct{})}
	s, _ := startProtected(t, protected, func(o *setup) {
		o.wrap = func(tree *files.Tree) Tree { h.Tree = tree; return h }
	})
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
	go func() { // what hung may look more than once
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

// While a client does not read the listing of a directory with 20,000 names, others take locks in it and elsewhere.
func TestNobodyElseWaitsForTheListingOfAHugeDirectory(t *testing.T) {
	s := start(t)
	s.fill("/locks/huge", 20_000)
	for _, command := range []string{"LIST /locks/huge", "MLSD /locks/huge", "NLST -t /locks/huge"} {
		slow := s.as("phoneacc")
		defer slow.data().Close() // and is not read
		slow.send(command + "\r\n")
	}
	c := s.as("phoneacc")
	for i := range 20 {
		for _, lock := range []string{fmt.Sprint("/locks/", i), fmt.Sprint("/locks/huge/", i)} {
			c.want("MKD "+lock, "257 *")
			c.want("RMD "+lock, "250 *")
		}
	}
}
