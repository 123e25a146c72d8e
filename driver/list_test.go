package driver

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// bare leaves out of a listing all but the names.
func bare(listing string) string {
	var names []string
	for l := range strings.SplitSeq(strings.TrimSuffix(listing, "\r\n"), "\r\n") {
		if fields := strings.Fields(l); len(fields) > 8 {
			names = append(names, strings.Join(fields[8:], " "))
		} else if l != "" {
			names = append(names, l)
		}
	}
	return strings.Join(names, " ")
}

func TestListings(t *testing.T) {
	inEachMode(t, func(t *testing.T, s *server, dial func(string) *conn) {
		for _, f := range []string{"/d/b", "/d/a", "/d/.hidden", "/d/sub/x", "/d/sub/y", "/d/sab/x", "/d/-al", "/d/c[1]"} {
			s.write(f, "x")
		}
		s.mkdir("/empty")
		s.link("a", "/d/link")
		s.link("sub", "/d/sublink")
		s.link("/nowhere", "/d/broken")
		c := dial("phoneacc")
		c.want("CWD /d", "250 *")
		for _, tt := range []struct{ command, names string }{
			{"LIST", "-al a b broken c[1] link sab sub sublink"},
			{"LIST -a", "-al .hidden a b broken c[1] link sab sub sublink"},
			{"LIST -A", "-al .hidden a b broken c[1] link sab sub sublink"},
			{"LIST -l", "-al a b broken c[1] link sab sub sublink"},
			{"LIST -CF", "-al a b broken c[1] link sab/ sub/ sublink/"},
			{"LIST -la /d/sub", "x y"},
			{"LIST -a -l sub", "x y"},
			{"LIST   sub", "x y"},
			{"LIST -r sub", "y x"},
			{"LIST sub/", "x y"},
			{"LIST sublink", "x y"},
			{"LIST -d sub", "sub"},
			{"LIST -d", "."},
			{"LIST a", "a"},
			{"LIST -al", "-al"}, // a name, if there is one
			{"LIST -- -al", "-al"},
			{"LIST /d/b", "/d/b"},
			{"LIST *", "-al a b broken c[1] link sab sub sublink"},
			{"LIST a*", "a"},
			{"LIST s?b", "sab sub"},
			{"LIST /empty", ""},
			{"NLST", "-al a b broken c[1] link sab sub sublink"},
			{"NLST .", "-al a b broken c[1] link sab sub sublink"},
			{"NLST -a", "-al .hidden a b broken c[1] link sab sub sublink"},
			{"NLST *", "-al a b broken c[1] link sab sub sublink"},
			{"NLST .*", ".hidden"},
			{"NLST c[1]", "c[1]"}, // the file of that name, before what the pattern fits
			{"NLST [ab]", "a b"},
			// RFC 1123 section 4.1.2.7: what can be given to RETR
			{"NLST sub", "sub/x sub/y"},
			{"NLST ./sub", "./sub/x ./sub/y"},
			{"NLST sub/", "sub/x sub/y"},
			{"NLST /d/sub", "/d/sub/x /d/sub/y"},
			{"NLST ../d/sub", "../d/sub/x ../d/sub/y"},
			{"NLST sub/..", "sub/../-al sub/../a sub/../b sub/../broken sub/../c[1] sub/../link sub/../sab sub/../sub sub/../sublink"},
			{"NLST /d/s*b", "/d/sab /d/sub"},
			{"NLST s*/x", "sab/x sub/x sublink/x"},
			{"NLST */?", "sab/x sub/x sub/y sublink/x sublink/y"},
			{"NLST /e*", "/empty /ever"},
			{"NLST nothing*", ""},
			{"NLST /nothing/*", ""},
			{"NLST [", ""},
			{"NLST /empty", ""},
		} {
			if got := bare(c.fetch(tt.command)); got != tt.names {
				t.Errorf("%s:\n got %q\nwant %q", tt.command, got, tt.names)
			}
		}
		for command, want := range map[string]string{
			"LIST none":     "550 /d/none: no such file or directory",
			"NLST none":     "550 /d/none: no such file or directory",
			"LIST a/b":      "550 /d/a/b: a part of the path is no directory",
			"MLSD none":     "550 /d/none: no such file or directory",
			"MLSD a":        "501 /d/a: is not a directory", // RFC 3659 section 7.2.1
			"MLSD *":        "550 /d/[*]: no such file or directory",
			"LIST broken/x": "550 *",
		} {
			_, r := c.download(command)
			c.check(command, r, strings.ReplaceAll(want, "[*]", "*"))
		}
		if got := c.fetch("NLST /"); !strings.HasPrefix(got, "/d\r\n/empty\r\n") {
			t.Errorf("NLST /: %q", got)
		}
	})
}

func TestListingsInOrder(t *testing.T) {
	s := start(t)
	for i, name := range []string{"b", "a", "c"} {
		s.write("/d/"+name, strings.Repeat("x", 3-i))
		when := time.Date(2026, 1, 1+i, 0, 0, 0, 0, time.UTC)
		if err := os.Chtimes(filepath.Join(s.root, "d", name), when, when); err != nil {
			t.Fatal(err)
		}
	}
	c := s.as("phoneacc")
	for options, want := range map[string]string{"": "a b c", "-r": "c b a", "-t": "c a b", "-tr": "b a c", "-S": "b a c", "-Sr": "c a b"} {
		if got := bare(c.fetch("LIST " + options + " /d")); got != want {
			t.Errorf("LIST %s: %q, want %q", options, got, want)
		}
	}
}

func TestALongListingIsLikeThatOfLs(t *testing.T) {
	s := start(t)
	s.write("/d/f", "12345")
	lately := s.clock.Now().Wall.UTC().Add(-time.Hour)
	for _, tt := range []struct{ when, shown string }{
		{"20200102030405", "Jan  2  2020"},
		{lately.Format(timeValue), lately.Format("Jan _2 15:04")},
	} {
		c := s.as("boss")
		c.want("MFMT "+tt.when+" /d/f", "213 *")
		if got := c.fetch("LIST /d"); got != "-rw-r--r--    1 ftp      ftp                 5 "+tt.shown+" f\r\n" {
			t.Errorf("LIST: %q", got)
		}
	}
}

func TestStatOfAPath(t *testing.T) {
	s := start(t)
	s.write("/d/f", "x")
	s.write("/d/213 forged", "x")
	c := s.as("phoneacc")
	c.play(`
		C: STAT /d
		S: 213-Status of /d:
		S:  -rw-r--r-- * 213 forged
		S:  -rw-r--r-- * f
		S: 213 End of status
		C: STAT /d/f
		S: 213-Status of /d/f:
		S:  -rw-r--r-- * /d/f
		S: 213 End of status
		C: STAT -a /d/n*
		S: 213 Status of /d/n*:
		C: STAT /none
		S: 550 /none: no such file or directory`)
}

// RFC 3659 section 7: PHP programs look for `type` in lower case.
func TestMachineListings(t *testing.T) {
	s := start(t)
	s.write("/d/f", "12345")
	s.mkdir("/d/sub")
	c := s.as("phoneacc")
	c.want("MFMT 20200102030405 /d/f", "213 *")
	got := c.fetch("MLSD /d")
	if !fits("type=file;size=5;modify=20200102030405;perm=adfwr;unique=*;unix.mode=0644; f\r\ntype=dir;modify=#;perm=cdeflmp;unique=*;unix.mode=0755; sub\r\n", got) {
		t.Errorf("MLSD: %q", got)
	}
	c.play(`
		C: OPTS MLST Size;TYPE;nonsense;
		S: 200 MLST OPTS type;size;
		C: MLST /d/f
		S: 250-facts about it
		S:  type=file;size=5; /d/f
		S: 250 End
		C: OPTS MLST
		S: 200 MLST OPTS
		C: MLST d
		S: 250-*
		S:   /d
		S: 250 *
		C: MLST
		S: 250-*
		S:   /
		S: 250 *
		C: MLST /none
		S: 550 /none: *
		C: OPTS UTF8 ON
		S: 200 *
		C: OPTS utf-8
		S: 200 *
		C: OPTS NONE
		S: 501 *`)
	if got := c.ask("FEAT"); !strings.Contains(got, " MLST type;size;modify;perm;unique;unix.mode;\n") {
		t.Errorf("FEAT after OPTS MLST: %s", got)
	}
}

func TestFeatAndHelp(t *testing.T) {
	s := start(t, secure)
	c := s.dial()
	feat := c.ask("FEAT")
	for _, want := range []string{"AUTH TLS", "EPRT", "EPSV", "MDTM", "MFMT", "MLST type*;size*;", "PBSZ", "PROT", "REST STREAM", "SIZE", "TVFS", "UTF8", "HASH SHA-256*;", "SITE LOCK\n", "SITE LOCK DISCONNECT\n", "SITE LOCKS", "SITE WAIT", "STOR STAGED"} {
		if !strings.Contains(feat, "\n "+want) {
			t.Errorf("FEAT does not tell of %s: %s", want, feat)
		}
	}
	help := c.ask("HELP")
	if !strings.HasPrefix(help, "214-The following commands are recognized:\n") {
		t.Errorf("Net::FTP does not read this: %s", help)
	}
	for _, want := range []string{"ALLO", "MKD", "RMD", "STOU", "SITE"} {
		if !slices.Contains(strings.Fields(help), want) {
			t.Errorf("HELP does not tell of %s", want)
		}
	}
	c.play(`
		C: HELP ALLO
		S: 214 Syntax: ALLO *
		C: help mkd
		S: 214 Syntax: MKD path: *
		C: HELP NONE
		S: 502 unknown command 'NONE'
		C: HELP SMNT
		S: 502 *
		C: NONE
		S: 500 'NONE' is not a command of this server
		C: SMNT x
		S: 502 *
		C: SYST
		S: 215 UNIX Type: L8`)
}

func TestTransferParameters(t *testing.T) {
	s := start(t)
	s.as("phoneacc").play(`
		C: TYPE A
		S: 200 *
		C: TYPE A N
		S: 200 *
		C: type i
		S: 200 *
		C: TYPE L 8
		S: 200 *
		C: TYPE E
		S: 504 *
		C: TYPE \x09
		S: 504 *
		C: TYPE
		S: 501 *
		C: MODE s
		S: 200 *
		C: MODE B
		S: 504 *
		C: STRU F
		S: 200 *
		C: STRU R
		S: 504 *
		C: ACCT
		S: 202 *`)
}

func TestSizesTimesAndDigests(t *testing.T) {
	inEachMode(t, func(t *testing.T, s *server, dial func(string) *conn) {
		s.write("/f", "hello\n")
		s.mkdir("/d")
		c := dial("phoneacc")
		c.play(`
			C: SIZE /f
			S: 213 6
			C: SIZE /d
			S: 550 /d: is a directory
			C: SIZE /none
			S: 550 /none: no such file or directory
			C: SIZE
			S: 501 *
			C: MDTM /d
			S: 213 #
			C: MDTM /none
			S: 550 *
			C: MFMT 20200102030405 /d
			S: 213 *
			C: MFMT 2020 /f
			S: 501 *
			C: MFMT 20200102030405
			S: 501 *
			C: MFMT 20200102030405 /none
			S: 550 *
			C: XCRC /f
			S: 250 363a3020
			C: XMD5 "/f"
			S: 250 b1946ac92492d2347c6235b4d2611184
			C: XSHA1 /f
			S: 250 f572d396fae9206628714fb2ce00f72e94f2258f
			C: XSHA256 f
			S: 250 5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03
			C: HASH f
			S: 213 SHA-256 0-6 5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03 f
			C: OPTS HASH
			S: 200 SHA-256
			C: OPTS HASH md5
			S: 200 MD5
			C: OPTS HASH CRC64
			S: 501 *
			C: HASH /f
			S: 213 MD5 0-6 b1946ac92492d2347c6235b4d2611184 /f
			C: HASH /d
			S: 553 *
			C: HASH /none
			S: 550 *
			C: AVBL
			S: 213 #
			C: AVBL /d
			S: 213 #
			C: AVBL /f
			S: 550 *
			C: AVBL /none
			S: 550 *`)
	})
}

func TestDownloads(t *testing.T) {
	inEachMode(t, func(t *testing.T, s *server, dial func(string) *conn) {
		large := strings.Repeat("0123456789abcde\n", 200_000)
		s.write("/large", large)
		s.write("/text", "a\nb\r\nc")
		s.mkdir("/d")
		s.link("text", "/link")
		c := dial("phoneacc")
		if got := c.fetch("RETR /text"); got != "a\r\nb\r\nc" {
			t.Errorf("ASCII: %q", got)
		}
		c.want("TYPE I", "200 *")
		if got := c.fetch("RETR /link"); got != "a\nb\r\nc" {
			t.Errorf("binary: %q", got)
		}
		if got := c.fetch("RETR /large"); got != large {
			t.Errorf("%d bytes of %d", len(got), len(large))
		}
		c.want("REST 3199990", "350 *")
		if got := c.fetch("RETR /large"); got != large[3199990:] {
			t.Errorf("after REST: %q", got)
		}
		c.want("REST 6", "350 *")
		if got := c.fetch("RETR /text"); got != "" {
			t.Errorf("from the end: %q", got)
		}
		for command, want := range map[string]string{
			"RETR /d":    "550 /d: is a directory",
			"RETR /none": "550 /none: no such file or directory",
			"RETR /":     "550 /: is a directory",
		} {
			_, r := c.download(command)
			c.check(command, r, want)
		}
		c.want("REST 7", "350 *")
		_, r := c.download("RETR /text")
		c.check("beyond the end", r, "554 /text: REST beyond the end of the file")

		// A client that has enough and hangs up: the transfer was broken, the session goes on.
		s.sparse("/large")
		nc := c.data()
		c.want("RETR /large", "150 *")
		io.ReadFull(c.secured(nc), make([]byte, 10))
		nc.SetLinger(0)
		nc.Close()
		c.play("S: 426 /large: the data connection was cut")
		c.want("NOOP", "200 *")
	})
}

func TestTheStatusFileTellsOfTheLocks(t *testing.T) {
	inEachMode(t, func(t *testing.T, s *server, dial func(string) *conn) {
		c := dial("phoneacc")
		c.want("TYPE I", "200 *")
		if got := c.fetch("RETR /.locks.json"); !fits("{\n  \"now\": \"*\",\n  \"locks\": []\n}\n", got) {
			t.Errorf("no locks: %s", got)
		}
		c.want("MKD /locks/a<b>", "257 *")
		c.want("MKD /ever/x", "257 *")
		got := c.fetch("RETR .locks.json")
		want := `*"path": "/ever/x",*"expires": null*"path": "/locks/a<b>",
      "holder": "phoneacc",
      "address": "127.0.0.1",
      "session": "#-#",
      "token": #,
      "acquired": "*Z",
      "age_seconds": *,
      "expires": "*Z"*`
		if !fits(want, got) {
			t.Errorf("status: %s", got)
		}
		c.play(`
			C: SIZE /.locks.json
			S: 550 /.locks.json: is made anew each time: *
			C: MDTM /.locks.json
			S: 213 #
			C: MLST /.locks.json
			S: 250-*
			S:  type=file;*; /.locks.json
			S: 250 *
			C: CWD /.locks.json
			S: 550 /.locks.json: is not a directory`)
		const no = ": is served by the server itself and cannot be changed"
		s.write("/f", "x")
		for _, command := range []string{
			"DELE /.locks.json", "RMD /.locks.json", "RNFR /.locks.json", "MFMT 20200101000000 /.locks.json",
		} {
			c.want(command, "550 /.locks.json"+no)
		}
		c.want("RNFR /f", "350 *")
		c.want("RNTO /.locks.json", "550 /.locks.json"+no)
		for _, command := range []string{"STOR", "APPE", "STOU"} {
			c.check(command, c.upload(command+" /.locks.json", "x"), "550 /.locks.json"+no)
		}
		if got := c.fetch("NLST -a"); !strings.HasPrefix(got, ".locks.json\r\n") {
			t.Errorf("NLST -a: %q", got)
		}
	})
}

func TestTheStatusFileCanBeOff(t *testing.T) {
	s := start(t, func(o *setup) { o.settings.StatusFile = "" })
	c := s.as("phoneacc")
	_, r := c.download("RETR /.locks.json")
	c.check("RETR", r, "550 *: no such file or directory")
	if got := c.fetch("NLST -a"); strings.Contains(got, "json") {
		t.Errorf("NLST -a: %q", got)
	}
	c.store("/.locks.json", "an ordinary file")
}

func TestSite(t *testing.T) {
	inEachMode(t, func(t *testing.T, s *server, dial func(string) *conn) {
		s.write("/f", "x")
		a, b, boss := dial("phoneacc"), dial("phoneacc"), dial("boss")
		a.play(`
			C: SITE
			S: 501 *
			C: SITE HELP
			S: 214-SITE commands:
			S: *
			S: *
			S: *
			S: *
			S: *
			S: *
			S: *
			S: *
			S: *
			S: 214 End
			C: SITE NONE
			S: 500 *
			C: SITE LOCKS
			S: 211 no locks are held
			C: SITE LOCK AGE 60
			S: 200 *
			C: MKD /locks/short
			S: 257 "/locks/short" locked, token #, expires in 1m0s
			C: SITE LOCK AGE 0
			S: 200 *
			C: SITE LOCK AGE -1
			S: 501 *
			C: SITE LOCK AGE x
			S: 501 *
			C: MKD /locks/long
			S: 257 "/locks/long" locked, token #, expires in 6m0s
			C: MKD /ever/x
			S: 257 *
			C: site lock info /ever/x
			S: 211-Lock /ever/x
			S:  held by phoneacc@127.0.0.1 for 0s, never expires, token #
			S: 211 End
			C: SITE LOCK INFO /locks/none
			S: 550 /locks/none: not held
			C: SITE LOCK INFO /nolock
			S: 550 /nolock: no rule makes that name a lock
			C: SITE LOCK DISCONNECT KEEP
			S: 501 *
			C: SITE LOCK DISCONNECT RELEASE x
			S: 501 *
			C: SITE LOCK DISCONNECT RELEASE 15
			S: 200 *
			C: site lock disconnect release
			S: 200 *
			C: SITE LOCKS
			S: 211-3 locks are held:
			S:  /ever/x: held by *
			S:  /locks/long: held by *
			S:  /locks/short: held by *
			S: 211 End
			C: SITE LOCKS /locks/s*
			S: 211-1 locks are held:
			S:  /locks/short: held by *
			S: 211 End
			C: SITE LOCKS [
			S: 501 *
			C: SITE LOCK
			S: 501 *
			C: SITE LOCK NONE x
			S: 501 *
			C: SITE LOCK AS
			S: 501 *`)
		s.clock.Advance(50 * time.Second)
		a.want("SITE LOCK RENEW /locks/short", `200 "/locks/short" locked, token #, expires in 1m0s`)
		s.pass(50 * time.Second)
		if !s.held("/locks/short") {
			t.Error("a lock that was renewed has expired")
		}
		b.want("SITE LOCK RENEW /locks/short", "550 /locks/short: not yours: *")
		a.want("SITE LOCK RENEW /locks/none", "550 /locks/none: not held")
		// the same job on another connection
		b.play(`
			C: RMD /locks/long
			S: 550 /locks/long: not yours: *
			C: SITE LOCK AS job 1
			S: 501 *
			C: SITE LOCK AS job-1
			S: 200 *`)
		a.play(`
			C: SITE LOCK AS job-1
			S: 200 *
			C: MKD /locks/job
			S: 257 *`)
		b.play(`
			C: MKD /locks/job
			S: 257 "/locks/job" locked, *
			C: RMD /locks/job
			S: 250 *
			C: SITE LOCK BREAK /locks/long
			S: 550 only administrators break locks`)
		boss.breaks("/locks/long")
		boss.play(`
			C: SITE LOCK BREAK 1 /locks/long
			S: 550 /locks/long: not held
			C: SITE CHMOD 600
			S: 501 *
			C: SITE CHMOD
			S: 501 *
			C: SITE CHMOD 1777 /f
			S: 501 *
			C: SITE CHMOD 9 /f
			S: 501 *
			C: SITE CHMOD 600 /f
			S: 200 *
			C: SITE CHMOD 600 /none
			S: 550 /none: *`)
		if info, err := os.Stat(filepath.Join(s.root, "f")); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
		a.want("SITE CHMOD 644 /f", "550 /f: this account may not change modes")
	})
}

// A pattern of many stars in a tree of many links does not keep the server busy for ever.
func TestAGlobLooksAtSoManyNamesAtMost(t *testing.T) {
	s := start(t)
	for i := range 20 {
		s.mkdir(fmt.Sprintf("/d/%d", i))
		s.mkdir("/loops")
		s.link(".", fmt.Sprintf("/loops/%d", i))
	}
	c := s.as("phoneacc")
	c.want("CWD /d", "250 *")
	if got := c.fetch("NLST " + strings.Repeat("*/../", 200) + "1*"); bare(got) != "1 10 11 12 13 14 15 16 17 18 19" {
		t.Errorf("NLST: %q", got)
	}
	c.want("CWD /loops", "250 *")
	s.driver.maxLooks = 10_000
	_, r := c.download("NLST " + strings.Repeat("*/", 200) + "*")
	c.check("NLST", r, "550 /loops/*: fits too many names")
}
