package driver

import "testing"

func TestCombAppendsThePartsAndRemovesThem(t *testing.T) {
	inEachMode(t, func(t *testing.T, s *server, dial func(string) *conn) {
		s.write("/1", "one ")
		s.write("/2 b", "two ")
		s.write("/3", "three")
		c := dial("phoneacc")
		c.play(`
			C: COMB /whole 1 "2 b"
			S: 250 /whole combined`)
		s.wantContent("/whole", "one two ")
		c.play(`
			C: COMB whole 3
			S: 250 /whole combined`)
		s.wantContent("/whole", "one two three")
		for _, part := range []string{"/1", "/2 b", "/3"} {
			s.wantContent(part, "(none)")
		}
	})
}

func TestCombThatFailsLosesNothing(t *testing.T) {
	s := start(t)
	s.write("/whole", "old ")
	s.write("/1", "one")
	s.mkdir("/d")
	s.link("/whole", "/outside")
	s.mkdir("/sub")
	s.link("../sub", "/sub/here")
	s.write("/sub/a", "a")
	c := s.as("phoneacc")
	c.play(`
		C: MKD /locks/x
		S: 257 *
		C: COMB /whole
		S: 501 *
		C: COMB /whole "1
		S: 501 *
		C: COMB /whole 1 none
		S: 550 /none: *
		C: COMB /whole 1 d
		S: 550 /d: *
		C: COMB /whole 1 whole
		S: 501 /whole: is named twice
		C: COMB /whole 1 1
		S: 501 /1: is named twice
		C: COMB /sub/a /sub/here/a
		S: 501 *: is named twice
		C: COMB /none/whole 1
		S: 550 *
		C: COMB /locks/whole 1
		S: 550 *
		C: COMB /whole /locks/x
		S: 550 /locks/x: *`)
	reader := s.as("reader")
	reader.play(`
		C: COMB /whole 1
		S: 550 *
		C: COMB /new 1
		S: 550 *`)
	writer := s.as("writer") // may not read the parts
	writer.play(`
		C: COMB /whole 1
		S: 550 *`)
	s.wantContent("/whole", "old ")
	s.wantContent("/1", "one")
	s.wantContent("/sub/a", "a")
}
