package driver

import (
	"os"
	"path/filepath"
	"testing"
)

// A digest waits for its turn. A large file delays no small one, and a digest ends with its client.
func TestDigestsTakeTurns(t *testing.T) {
	s := start(t)
	s.driver.digests = digests{turns: make(chan struct{}, 1)}
	s.write("/small", "content")
	s.write("/large", "")
	if err := os.Truncate(filepath.Join(s.root, "large"), 1<<40); err != nil {
		t.Fatal(err)
	}
	large, waiting, small := s.as("reader"), s.as("reader"), s.as("other")
	s.driver.digests.turns <- struct{}{} // the turn of another digest
	small.send("XCRC /small\r\n")
	s.until("it waits", func() bool { return somewhere("hashForATurn", "[select") })
	<-s.driver.digests.turns
	small.check("XCRC", small.reply(), "250*")
	large.send("XSHA512 /large\r\n")
	waiting.send("XSHA512 /large\r\n")
	for range 3 {
		small.want("XCRC /small", "250*")
	}
	for _, c := range []*conn{large, waiting, small} {
		c.Conn.Close()
	}
	s.alone()
	if len(s.driver.digests.turns) > 0 {
		t.Error("a client that has gone keeps its turn")
	}
}

// A file that becomes shorter has no digest of fewer bytes.
func TestADigestOfAFileThatShrinks(t *testing.T) {
	s := start(t)
	s.driver.digests = digests{turns: make(chan struct{}, 1)}
	s.write("/f", "content")
	s.driver.digests.turns <- struct{}{} // the turn of another digest
	c := s.as("reader")
	c.send("XCRC /f\r\n")
	s.until("it waits", func() bool { return somewhere("hashForATurn", "[select") })
	if err := os.Truncate(filepath.Join(s.root, "f"), 3); err != nil {
		t.Fatal(err)
	}
	<-s.driver.digests.turns
	c.check("XCRC", c.reply(), "451 /f: the file has become shorter meanwhile")
}
