package driver

import (
	"os"
	"path"
	"path/filepath"
	"sync"
	"testing"

	"github.com/spf13/afero"

	"github.com/ftplockd/ftplockd/internal/files"
)

// counted is a tree that counts the open files of digests, by account. A file without a turn at its Close counts as late.
// Each file blocks its first Read until open is closed.
type counted struct {
	*files.Tree
	open  chan struct{}
	turns *digests

	mu      sync.Mutex
	reading map[string]int
	most    map[string]int
	late    int
}

type countedFile struct {
	afero.File
	tree  *counted
	name  string
	reads bool
}

func (c *counted) Open(name string) (afero.File, error) {
	f, err := c.Tree.Open(name)
	return &countedFile{File: f, tree: c, name: name}, err
}

func (c *counted) add(name string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range []string{name, "all"} {
		c.reading[of] += n
		c.most[of] = max(c.most[of], c.reading[of])
	}
}

func (c *counted) now(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reading[name]
}

func (f *countedFile) Read(p []byte) (int, error) {
	if !f.reads {
		f.reads = true
		f.tree.add(f.name, 1)
	}
	<-f.tree.open
	return f.File.Read(p)
}

func (f *countedFile) Close() error {
	if f.reads {
		f.tree.turns.mu.Lock()
		turn := f.tree.turns.accounts[path.Base(f.name)]
		f.tree.turns.mu.Unlock()
		f.tree.mu.Lock()
		if !turn {
			f.tree.late++
		}
		f.tree.mu.Unlock()
		f.tree.add(f.name, -1)
	}
	return f.File.Close()
}

func TestDigestsAreLimitedForEachAccountAndInAll(t *testing.T) {
	tree := &counted{open: make(chan struct{}), reading: make(map[string]int), most: make(map[string]int)}
	s := start(t, func(o *setup) {
		o.wrap = func(files *files.Tree) Tree {
			tree.Tree = files
			return tree
		}
	})
	tree.turns = s.driver.digests
	s.driver.digests.max, s.driver.digests.turn = 2, patience
	var all []*conn
	for _, account := range []string{"phoneacc", "other", "reader"} {
		s.write("/"+account, "content")
		for range 3 {
			c := s.as(account)
			c.send("XCRC /" + account + "\r\n")
			all = append(all, c)
		}
	}
	s.until("all nine read or wait", func() bool {
		s.driver.digests.mu.Lock()
		defer s.driver.digests.mu.Unlock()
		return tree.now("all")+len(s.driver.digests.waiting) == len(all)
	})
	close(tree.open)
	for _, c := range all {
		c.check("XCRC", c.reply(), "250*")
	}
	for account, most := range tree.most {
		if limit := map[bool]int{true: 2, false: 1}[account == "all"]; most > limit {
			t.Errorf("%s: %d digests at a time, want at most %d", account, most, limit)
		}
	}
	if tree.late > 0 {
		t.Errorf("%d digests ended their turn before they closed their file", tree.late)
	}
	if len(s.driver.digests.accounts) > 0 {
		t.Errorf("turns that did not end: %v", s.driver.digests.accounts)
	}
}

// A digest lets the others continue, so a large file holds up no small one; and it ends with its client.
func TestDigestsTakeTurns(t *testing.T) {
	s := start(t)
	s.driver.digests.max, s.driver.digests.turn = 1, 0
	s.write("/small", "content")
	s.write("/large", "")
	if err := os.Truncate(filepath.Join(s.root, "large"), 1<<40); err != nil {
		t.Fatal(err)
	}
	large, waiting := s.as("reader"), s.as("reader")
	large.send("XSHA512 /large\r\n")
	waiting.send("XSHA512 /large\r\n")
	small := s.as("other")
	for range 3 {
		small.want("XCRC /small", "250*")
	}
	for _, c := range []*conn{large, waiting, small} {
		c.Close()
	}
	s.alone()
	if len(s.driver.digests.accounts)+len(s.driver.digests.waiting) > 0 {
		t.Error("a client that has gone keeps its turn, or its place")
	}
}
