package driver

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/lock"
)

func TestUploads(t *testing.T) {
	uploads := `
		- mkdir /dir
		- write /old 0123456789
		# RFC 959 section 3.1.1.1: ASCII is the default; its line ends are converted
		a STOR /text <<< a\r\nb\n => 226 *
		- file /text a\nb\n
		a RETR /text => 226 * >>> a\r\nb\r\n
		a TYPE I => 200 *
		a STOR /text <<< a\r\nb\n => 226 *
		- file /text a\r\nb\n
		a TYPE A => 200 *
		a REST 2 => 350 *
		a STOR /text <<< x => 554 /text: REST needs TYPE I: *
		a TYPE I => 200 *
		a STOR /empty <<<  => 226 transfer complete, 0 bytes received
		- file /empty
		a APPE /old <<< ab => 226 transfer complete, 2 bytes received
		- file /old 0123456789ab
		a APPE /appended <<< ab => 226 *
		- file /appended ab
		# RFC 3659 section 5: REST goes with STOR, too
		a REST 4 => 350 *
		a STOR /old <<< xy => 226 transfer complete, 2 bytes received
		- file /old 0123xy
		a STOR /old <<< not at 4 => 226 *
		- file /old not at 4
		a REST 100 => 350 *
		a STOR /old <<< xy => 554 /old: REST beyond the end of the file
		a REST 3 => 350 *
		a APPE /old <<< ! => 226 *
		- file /old not at 4!
		a STOR /dir <<< x => 550 /dir: is a directory
		a STOR / <<< x => 550 /: is a directory
		a STOR /none/f <<< x => 550 /none/f: no such file or directory
		a STOR /old/f <<< x => 550 /old/f: a path component is not a directory
		a APPE /dir <<< x => 550 /dir: is a directory
		a REST -1 => 501 *
		a REST x => 501 *
		# ALLO announces, so that an upload that was cut off is known to be one
		a ALLO 5 => 200 *
		a STOR /old <<< 1234 => 426 /old: fewer bytes than ALLO announced: 4 of 5
		- file /old not at 4!
		a ALLO 5 => 200 *
		a LIST /none* => 226 *
		a retr /old => 425 *
		a STOR /old <<< 1234 => 426 /old: fewer bytes than ALLO announced: 4 of 5
		a ALLO 5 => 200 *
		a STOR /old <<< 12345 => 226 *
		a STOR /old <<< 1 => 226 *
		a ALLO => 501 *
		a ALLO x => 501 *
		a ALLO -1 => 501 *
		a ALLO 99999999999999999999 => 501 *
		# the file system of the target may have more space than that of the current directory
		a ALLO 9223372036854775807 => 200 *
		a STOR /old <<< 1 => 426 /old: fewer bytes than ALLO announced: 1 of 9223372036854775807
		# in ASCII the count of the client is that of its own line ends
		a TYPE A => 200 *
		a ALLO 5 R 80 => 200 *
		a STOR /old <<< 1\n => 226 *
		- file /old 1\n`
	plays(t, uploads)
	plays(t, uploads, tlsRequired)
}

// RFC 1123 section 4.1.2.9: the 150 of STOU contains the name.
func TestStouMakesAFileOfItsOwn(t *testing.T) {
	eachMode(t, func(t *testing.T, s *server) {
		s.write("/f", "old")
		s.mkdir("/dir")
		s.link("dir", "/way")
		c := s.as("phoneacc")
		c.want("MKD /locks/y", "257 *")
		for _, tt := range []struct{ command, name string }{
			{"STOU /new", "/new"}, {"STOU /f", "/f"}, {"STOU", "/ftp"}, {"STOU", "/ftp"}, {"STOU /dir", "/dir/ftp"}, {"STOU dir", "/dir/ftp"},
			{"STOU /way", "/way/ftp"}, {"STOU /locks/x", "/locks/x"}, {"STOU /locks/y", "/locks/y/ftp"},
		} {
			nc := c.data()
			first := c.ask(tt.command)
			c.check(tt.command, first, "150 FILE: "+tt.name+".*")
			io.WriteString(nc, tt.command)
			nc.Close()
			c.check(tt.command, c.reply(), "226 *")
			if got := c.fetch("RETR " + strings.TrimPrefix(first, "150 FILE: ")); got != tt.command {
				t.Errorf("%s: %q", tt.command, got)
			}
		}
		s.wantContent("/f", "old")
	})
}

// copying is a tree whose copies for APPE and REST take until the client has gone.
type copying struct {
	*files.Tree
	begun chan struct{}
}

func (c copying) Upload(_ string, o files.UploadOptions) (*files.Upload, error) {
	close(c.begun)
	for end := time.Now().Add(patience); !o.Gone() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	return nil, context.Canceled
}

func TestAborEndsTheCopyOfAppe(t *testing.T) {
	begun := make(chan struct{})
	s := start(t, func(o *setup) {
		o.wrap = func(tree *files.Tree) Tree { return copying{tree, begun} }
	})
	c := s.as("phoneacc")
	c.port()
	c.send("APPE /f\r\n")
	<-begun
	c.aborts()
}

// A client that is killed after the end of its data connection leaves a part of a file. It resets the control connection, so the upload is
// marked. It is not marked if the client sends another command, or if the upload was proven.
func TestAnUploadIsMarkedIfItsClientResetsTheConnection(t *testing.T) {
	for _, tt := range []struct {
		name, before, behind string
		reads                bool
		want                 int
	}{
		{"the 226 unread", "NOOP", "", false, 1},
		{"the 226 read, perhaps", "NOOP", "", true, 1},
		{"behind another command", "NOOP", "NOOP", true, 0},
		{"as long as announced", "ALLO 4", "", false, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var events notebook
			s := start(t, events.ofFiles, func(o *setup) {
				o.rules = []lock.Rule{{Match: "/f_lock", Protection: &lock.Protection{Paths: []string{"/f"}}}}
			})
			c := s.as("phoneacc")
			c.want("TYPE I", "200 *")
			c.want("MKD /f_lock", "257 *")
			c.want(tt.before, "200 *")
			c.begun("STOR /f", "half").Close()
			events.await(t, "publish", 1)
			if tt.reads {
				c.check("STOR", c.reply(), "226 *")
			}
			if tt.behind != "" {
				c.want(tt.behind, "200 *")
			}
			c.reset()
			s.alone()
			s.wantContent("/f", "half")
			rows := strings.Count(s.published(), "/f_lock 1 phoneacc /f 4 a11a unconfirmed")
			if got := those(events.await(t, "unconfirmed", tt.want), "unconfirmed /f /f_lock 1 phoneacc@127.0.0.1 4"); len(got) != tt.want || rows != tt.want {
				t.Errorf("%d events, %d rows of the history, want %d", len(got), rows, tt.want)
			}
		})
	}
}

// A reset of the data connection breaks the upload. An attacker may cut a TLS stream that has no close_notify (RFC 8446 section 6.1).
func TestABrokenDataConnectionPublishesNothing(t *testing.T) {
	const reset, noNotify = "426 /f: the data connection was cut", "426 /f: the data connection ended without a close_notify of TLS"
	s := start(t, secure, func(o *setup) { o.settings.Files.HangUp.Duration = patience }) // with a close_notify the server does not wait
	for i := range 8 {
		c := s.dial()
		ends, active := []string{reset}, i%2 == 0
		if i%4 < 2 {
			c.upgrade()
			ends = []string{reset, noNotify, "226 *"}
		}
		c.login("phoneacc")
		c.want([]string{"TYPE I", "TYPE A"}[i/4%2], "200 *")
		s.write("/f", "old")
		for _, end := range ends {
			nc := c.opened("STOR /f", active)
			data := c.Secure(nc)
			io.WriteString(data, "new")
			switch end {
			case reset:
				nc.SetLinger(0)
			case "226 *":
				data.Close()
			}
			nc.Close()
			c.check(end, c.reply(), end)
			if end != "226 *" {
				s.wantContent("/f", "old")
			}
		}
		c.TCP.Close()
	}
	s.alone()
}

// An upload replaces a link itself, so each name stands for one file.
func TestAnUploadReplacesALinkAndNotWhatItLeadsTo(t *testing.T) {
	plays(t, `
		- write /target old
		- link /link target
		- link /dirlink locks
		a STOR /link <<< new => 226 *
		- file /target old
		- file /link new
		a STOR /dirlink <<< x => 550 /dirlink: is a directory
		a STOR /dirlink/f <<< x => 226 *
		- file /locks/f x
		a MKD /locks/a => 257 *
		- link /lock locks/a
		a STOU /lock <<< x => 226 *
		a STOR /lock/note <<< x => 226 *
		a NLST /locks/a => 226 * >>> /locks/a/ftp.*\r\n/locks/a/note\r\n
		# new files are not executable, and old ones keep their modes
		- write /old x
		boss SITE CHMOD 600 /old => 200 *
		a STOR /old <<< y => 226 *
		a STOR /new <<< y => 226 *
		a MLST /old => 250-*\n *unix.mode=0600; /old\n250 *
		a MLST /new => 250-*\n *unix.mode=0644; /new\n250 *`)
}

// An upload does not follow its directory to another name, which locks may protect.
func TestAnUploadIsRefusedIfItsDirectoryIsRenamed(t *testing.T) {
	inBothModes(t, `
		- mkdir /in
		a STOR /in/f <<< x ...
		b RNFR /in => 350 *
		b RNTO /out => 250 *
		a => 451 /in/f: a directory above it was moved meanwhile
		- file /out/f (none)
		a STOR /out/f <<< y ...
		b MKD /out/f => 257 *
		a => 550 /out/f: is a lock: *
		b RNFR /out => 550 /out: there are held locks below it
		- held /out/f`, func(o *setup) { o.rules = append(o.rules, lock.Rule{Match: "**/out/*"}) })
}
