package driver

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/afero"

	"github.com/ftplockd/ftplockd/internal/files"
)

// fill makes so many files in a directory.
func (s *server) fill(dir string, many int) {
	s.t.Helper()
	s.mkdir(dir)
	for i := range many {
		if err := os.WriteFile(filepath.Join(s.root, dir, fmt.Sprintf("f%05d", i)), nil, 0o644); err != nil {
			s.t.Fatal(err)
		}
	}
}

// A directory with more names than are held is shown whole, each name once, with the locks in it.
func TestAListingOfMoreNamesThanAreHeldIsWhole(t *testing.T) {
	eachMode(t, func(t *testing.T, s *server) {
		const many = 2*pieceMax + 100
		s.fill("/locks", many)
		c := s.as("phoneacc")
		var want []string
		for i := range 20 {
			want = append(want, fmt.Sprintf("a%02d", i))
			c.want("MKD /locks/"+want[i], "257 *")
		}
		for i := range many {
			want = append(want, fmt.Sprintf("f%05d", i))
		}
		for _, command := range []string{"NLST /locks", "MLSD /locks", "LIST /l*/*"} {
			var got []string
			for line := range strings.Lines(c.fetch(command)) {
				line = strings.TrimSuffix(line, "\r\n")
				got = append(got, line[strings.LastIndexAny(line, " /")+1:])
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("%s: %d names, want %d", command, len(got), len(want))
			}
		}
		r, err := c.session().openNames("/locks")
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		for err == nil {
			var piece []string
			if piece, err = r.next(); len(piece) > pieceMax || !slices.IsSorted(piece) {
				t.Errorf("%d names are held, in order: %t", len(piece), slices.IsSorted(piece))
			}
		}
	})
}

// What would need all names at once is refused above a bound.
func TestListingsThatWouldHoldTooManyNamesAreRefused(t *testing.T) {
	s := start(t)
	s.fill("/d", heldMax+1)
	c := s.as("phoneacc")
	for _, option := range []string{"-t", "-S", "-tr"} {
		_, r := c.download("LIST " + option + " /d")
		c.check(option, r, "550 /d: too many names to sort by time or size")
	}
	if got := strings.Count(c.ask("STAT /d"), "\n"); got != heldMax+2 {
		t.Errorf("STAT: %d lines", got)
	}
	if err := os.Remove(filepath.Join(s.root, "d/f00000")); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(c.fetch("LIST -t /d"), "\n"); got != heldMax {
		t.Errorf("%d lines", got)
	}
	_, r := c.download("NLST " + strings.Repeat("/[a-z]*", 200))
	c.check("NLST", r, "550 *: is too long for a pattern")
	s.driver.maxLooks = heldMax
	_, r = c.download("NLST /*/none*")
	c.check("NLST", r, "550 *: fits too many names")
}

// Listings that must be held have a bound together, also while their clients do not read. A short one is always possible.
func TestListingsThatNobodyReadsHoldSoManyBytesTogether(t *testing.T) {
	s := start(t)
	s.fill("/d", 2000)
	s.fill("/short", 10)
	s.driver.listingsMax = 3 << 19 // two of them hold more
	c := s.as("phoneacc")
	unread, err := c.session().listing(formatLong, "-t /d")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // one that is refused holds nothing
		_, r := c.download("LIST -t /d")
		c.check("LIST -t", r, "450 /d: too many long listings are being read: *")
		c.want("STAT -t /d", "450 *: too many long listings are being read: *")
	}
	if got := strings.Count(c.fetch("LIST -t /short"), "\n"); got != 10 {
		t.Errorf("%d lines", got)
	}
	unread.Close()
	for range 3 {
		for _, list := range []func() string{func() string { return c.fetch("LIST -t /d") }, func() string { return c.ask("STAT -t /d") }} {
			if got := strings.Count(list(), "\n"); got < 2000 {
				t.Errorf("%d lines", got)
			}
		}
	}
}

// slow is a tree whose directories take their time.
type slow struct{ *files.Tree }

func (s slow) Open(name string) (afero.File, error) {
	time.Sleep(50 * time.Millisecond)
	return s.Tree.Open(name)
}

// No pattern is worked on for a client that has gone. This one would take 20 seconds.
func TestAGlobEndsWithItsClient(t *testing.T) {
	s := start(t, func(o *setup) { o.wrap = func(tree *files.Tree) Tree { return slow{tree} } })
	s.mkdir("/loops")
	for i := range 20 {
		s.link(".", fmt.Sprintf("/loops/%d", i))
	}
	c := s.as("phoneacc")
	c.want("CWD /loops", "250 *")
	defer c.data().Close()
	c.send("NLST */*/*/nothing/*\r\n")
	began := time.Now()
	s.until("it is at work", func() bool { return somewhere("(*listing).expand") })
	c.tcp.Close()
	s.alone()
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}
