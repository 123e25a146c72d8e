package driver

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// long returns a path of n bytes. None of its elements exists, and a file system can store each.
func long(n int) string {
	p := strings.Repeat("/"+strings.Repeat("d", 99), (n-2)/100)
	return p + "/" + strings.Repeat("e", n-len(p)-1)
}

func TestMkdOfEveryKindOfName(t *testing.T) {
	name := strings.Repeat("n", 255)
	inBothModes(t, `
		- write /file x
		- mkdir /dir
		a MKD /locks/held => 257 *
		b MKD /locks/held => 550 /locks/held: held by phoneacc@127.0.0.1 for 0s, expires in 6m0s
		b MKD /locks/held/ => 550 /locks/held: held by *
		b MKD /locks/../locks//./held => 550 /locks/held: held by *
		b MKD /dir/ => 550 /dir: is there already
		b MKD /file/dir => 550 /file/dir: a path component is not a directory
		b MKD /file/x_lock => 550 /file/x_lock: the directory above it does not exist
		b MKD . => 550 /: is there already
		b MKD / => 550 /: is there already
		b MKD /locks/a/.. => 550 /locks: is there already
		b MKD => 501 MKD needs an argument: *
		b MKD  => 501 MKD needs an argument: *
		b MKD /.locks.json => 550 /.locks.json: is there already
		# as many bytes as a line can have, and a byte more
		b MKD `+long(4090)+` => 550 *: no such file or directory
		b MKD `+long(4091)+` => 500 line too long
		b MKD /locks/n`+name+` => 553 ...nnn*nnn: the server cannot store such a name
		# no refusal acquired a lock
		b SITE LOCKS => 211-1 locks are held:*
		b MKD /locks/`+name+` => 257 "/locks/`+name+`" locked, *
		b RMD /locks/`+name+` => 250 *
		b MKD /locks/a/ => 257 "/locks/a" locked, *
		b RMD /locks/a/ => 250 *
		b MKD /../../locks/a => 257 "/locks/a" locked, *
		b RMD /../../locks/a => 250 *`)
}

var oddNames = []string{
	"with space", " leading", "trailing ", "a  b", `a"b`, `"begin`, `end"`, `a "b" c`, `""`, "tab\there", "f 0 3", "\xff\xfe\xff",
	`back\slash`, "%s%d%n", "a*b?[c]", "-al", "...", "a,b", "20200101000000 f",
}

// Names are bytes: the lock, its directory on disk and the replies have the name that the client sent.
func TestNamesAreBytes(t *testing.T) {
	names := append([]string{"plain", "  ", "100%", "a*b?[c]{d}", "utf8-\xc3\xa9\xe2\x82\xac", "latin1-\xe9", "iac-\xff\xf4-end", "~", "bell\x07", "\xc2\x85", "NBSP\xc2\xa0"}, oddNames...)
	eachMode(t, func(t *testing.T, s *server) {
		c := s.as("phoneacc")
		for _, name := range names {
			if r := c.ask("MKD /locks/" + name); !strings.HasPrefix(r, "257 "+quotedPath("/locks/"+name)+" locked, ") {
				t.Errorf("MKD /locks/%q: %q", name, r)
			}
			if !s.held(lock.Name("/locks/" + name)) {
				t.Errorf("no lock has the name %q", name)
			}
		}
		want := slices.Sorted(slices.Values(names))
		if got := c.fetch("NLST -a /locks"); got != "/locks/"+strings.Join(want, "\r\n/locks/")+"\r\n" {
			t.Errorf("NLST: %q", got)
		}
		if got := onDisk(t, filepath.Join(s.root, "locks")); s.driver.directories && !slices.Equal(got, want) {
			t.Errorf("on disk: %q", got)
		}
		for _, name := range names {
			if r := c.ask("RMD /locks/" + name); r != "250 /locks/"+name+" released" {
				t.Errorf("RMD /locks/%q: %q", name, r)
			}
		}
	})
}

// Every command accepts every name.
func TestFilesOfAnyName(t *testing.T) {
	s := start(t)
	s.mkdir("/dir")
	s.mkdir("/other")
	c := s.as("boss")
	c.want("CWD /dir", "250 *")
	for _, name := range oddNames {
		c.store(name, "hello\n")
		s.wantContent("/dir/"+name, "hello\n")
		if got := c.fetch("RETR " + name); got != "hello\r\n" {
			t.Errorf("RETR %q: %q", name, got)
		}
		path := "/dir/" + name
		for _, tt := range []struct{ command, reply string }{
			{"SIZE " + path, "213 6"},
			{"SIZE " + name, "213 6"},
			{"XMD5 " + path, "250 b1946ac92492d2347c6235b4d2611184"},
			{"HASH " + name, "213 SHA-256 0-6 5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03 " + name},
			{"MFMT 20200102030405 " + name, "213 Modify=20200102030405; " + path},
			{"MDTM " + path, "213 20200102030405"},
			{"SITE CHMOD 640 " + path, "200 " + path + " has mode 640"},
			{"MLST " + path, "250-"},
			{"RNFR " + name, "350 "},
			{"RNTO /other/" + name, "250 "},
			{"RNFR /other/" + name, "350 "},
			{"RNTO " + name, "250 "},
			{"DELE " + name, "250 "},
		} {
			if tt.command == `HASH ""` {
				continue // an empty name in quotes
			}
			got := c.ask(tt.command)
			if !strings.HasPrefix(got, tt.reply) || strings.HasPrefix(tt.command, "MLST") && !strings.HasSuffix(got, "; "+path+"\n250 End") {
				t.Errorf("%q: %q, want %q", tt.command, got, tt.reply)
			}
		}
	}
}

func onDisk(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// A line end in the name of a file that a program on the host made forges neither a reply nor a line of a listing.
func TestALineEndInANameForgesNoLine(t *testing.T) {
	s := start(t)
	s.write("/evil\r\n226 fine\r\n", "x")
	s.write("/fine", "x")
	c := s.as("phoneacc")
	for _, command := range []string{"LIST", "LIST -a", "NLST", "NLST *", "MLSD", "LIST e*"} {
		if got := c.fetch(command); strings.Contains(got, "226") || strings.Contains(got, "evil") {
			t.Errorf("%s: %q", command, got)
		}
	}
	if got := c.ask("STAT /"); strings.Contains(got, "226") {
		t.Errorf("STAT: %q", got)
	}
	c.want("NOOP", "200 *")
}

// Two spellings of one path are one lock.
func TestOneLockHasOneName(t *testing.T) {
	inBothModes(t, `
		- mkdir /real/deep
		- link /soft real
		- link /real/loop deep/../../real
		a MKD /soft/deep/x_lock => 257 "/soft/deep/x_lock" locked, *
		- held /real/deep/x_lock
		b MKD /real/deep/x_lock => 550 *: held by phoneacc@*
		b MKD /soft/deep/x_lock => 550 *: held by phoneacc@*
		b MKD /real/loop/deep/x_lock => 550 *: held by phoneacc@*
		b MKD /soft/loop/loop/deep/./x_lock => 550 *: held by phoneacc@*
		b MKD real/deep//x_lock/ => 550 *: held by phoneacc@*
		a RMD /real/loop/deep/x_lock => 250 *`)
}
