package driver

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A listing that is read in pieces has each name once, and the locks.
func TestAListingInPiecesIsComplete(t *testing.T) {
	eachMode(t, func(t *testing.T, s *server) {
		const many = 120
		s.driver.bounds.piece = 50
		c := s.as("phoneacc")
		var want []string
		for i := range 20 {
			want = append(want, fmt.Sprintf("a%02d", i))
			c.want("MKD /locks/"+want[i], "257 *")
		}
		for i := range many {
			want = append(want, fmt.Sprintf("f%05d", i))
			s.write("/locks/"+want[20+i], "")
		}
		for _, command := range []string{"NLST /locks", "MLSD /locks", "LIST /locks/*"} {
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
			if piece, err = r.next(); len(piece) > 50 || !slices.IsSorted(piece) {
				t.Errorf("a piece of %d names, sorted: %t", len(piece), slices.IsSorted(piece))
			}
		}
	})
}
