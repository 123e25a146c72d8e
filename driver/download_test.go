package driver

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestDownloads(t *testing.T) {
	downloads := `
		- write /text a\nb\r\nc
		- mkdir /d
		- link /link text
		a RETR /text => 226 * >>> a\r\nb\r\nc
		a REST 2 => 350 *
		a RETR /text => 554 /text: REST needs TYPE I: *
		a REST 0 => 350 *
		a RETR /text => 226 * >>> a\r\nb\r\nc
		a TYPE I => 200 *
		a RETR /link => 226 * >>> a\nb\r\nc
		a REST 2 => 350 *
		a RETR /text => 226 * >>> b\r\nc
		a REST 6 => 350 *
		a RETR /text => 226 *
		a REST 7 => 350 *
		a RETR /text => 554 /text: REST beyond the end of the file
		a RETR /d => 550 /d: is a directory
		a RETR /none => 550 /none: no such file or directory
		a RETR / => 550 /: is a directory`
	plays(t, downloads)
	plays(t, downloads, tlsRequired)

	// A client that resets the data connection of a download continues its session.
	inBothWires(t, func(t *testing.T, s *server) {
		s.sparse("/large")
		c := s.as("phoneacc")
		nc := c.opened("RETR /large", false)
		io.ReadFull(c.Secure(nc), make([]byte, 10))
		nc.SetLinger(0)
		nc.Close()
		c.play("=> 426 /large: the data connection was cut")
		c.want("NOOP", "200 *")
	})
}

// The content is large enough for both ways of copying: in this process, and in the kernel.
func TestLargeTransfersArriveAsTheyWereSent(t *testing.T) {
	content := make([]byte, 3_456_789)
	rand.NewChaCha8([32]byte{}).Read(content)
	inBothWires(t, func(t *testing.T, s *server) {
		c := s.as("phoneacc")
		c.want("TYPE I", "200 *")
		c.store("/f", string(content))
		if got, err := os.ReadFile(filepath.Join(s.root, "f")); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%d bytes came, %v", len(got), err)
		}
		if got := c.fetch("RETR /f"); got != string(content) {
			t.Errorf("%d bytes went back", len(got))
		}
		c.want("REST 1000000", "350 *")
		c.store("/f", string(content[1_000_000:]))
		if got, err := os.ReadFile(filepath.Join(s.root, "f")); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%d bytes came after REST, %v", len(got), err)
		}
	})
}

// If a file becomes shorter during its download, the reply is an error.
func TestADownloadOfAFileThatShrinksIsNoSuccess(t *testing.T) {
	for _, kind := range []string{"I", "A"} {
		s := start(t)
		s.sparse("/large")
		c := s.as("phoneacc")
		c.want("TYPE "+kind, "200 *")
		nc := c.opened("RETR /large", false)
		if _, err := io.ReadFull(nc, make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(filepath.Join(s.root, "large"), 8<<20); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, nc) // the reply reports the end
		c.check("TYPE "+kind, c.reply(), "451 /large: the file has become shorter meanwhile")
	}
}

// data_min_rate ends a download that is too slow, and no upload.
func TestADownloadThatIsTooSlowEnds(t *testing.T) {
	s := start(t, func(o *setup) { o.settings.FTP.DataMinRate = 1000 })
	s.driver.rateOver = 300 * time.Millisecond
	s.sparse("/big")
	uploader := s.as("phoneacc")
	upload := uploader.opened("STOR /f", false)

	c := s.as("phoneacc")
	unread := c.data()
	defer unread.Close()
	if err := unread.SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	c.want("RETR /big", "150 *")
	c.check("RETR", c.reply(), "426 /big: the data connection was too slow for too long")

	// The upload began before the download, and has moved no byte.
	if _, err := upload.Write([]byte("new")); err != nil {
		t.Fatal(err)
	}
	upload.Close()
	uploader.check("STOR", uploader.reply(), "226 *")
	s.wantContent("/f", "new")

	began := time.Now()
	p := pace{since: began}
	for i, moved := range []uint64{100, 1300, 1400, 1700} { // in all, after each second
		if slow := p.tooSlow(s.driver, moved, began.Add(time.Duration(i+1)*time.Second)); slow != (i != 1) {
			t.Errorf("%d bytes after %d s: %t", moved, i+1, slow)
		}
	}
}
