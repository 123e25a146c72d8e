package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// spellings returns paths that may lead out of the tree, or to hidden names in it.
func spellings() []string {
	all := []string{
		"../secret", "/../secret", "/../../../../../../etc/passwd", "....//secret", "/./../secret", "dir/../../secret", "//secret",
		"dir/..//../secret", `..\secret`, `\..\secret`, "%2e%2e/secret", "%2e%2e%2fsecret", "..%c0%afsecret", "\xc0\xae\xc0\xae/secret",
		"~/secret", "~root/secret", "file:///etc/passwd", "/proc/self/environ", "/dev/../../secret",
		"out/secret", "out/../secret", "/out/./secret", "absolute", "absolute/secret", "deep/out/secret", "chain/secret", "loop/x", "parent/secret",
		"dir/../out/secret", "out/state/password", "toFile", "-la ../", "-R /..", " ../secret", "../secret ", "/..", "..", "dir/../..",
		"/.ftplockd-leftovers/x", ".ftplockd-leftover-1/x", ".ftplockd-x", "/.ftplockd-leftovers", "dir/.ftplockd-x",
	}
	for _, dots := range []string{"../", "..//", "./../"} {
		all = append(all, strings.Repeat(dots, 40)+"secret", "/dir/"+strings.Repeat(dots, 40)+"etc/passwd")
	}
	return all
}

// TestAttackNoPathLeadsOutOfTheTree tries each spelling with each command that has a path. The tree contains links that lead out of it, such as
// an administrator may make by mistake.
func TestAttackNoPathLeadsOutOfTheTree(t *testing.T) {
	t.Parallel()
	for _, directories := range []string{"true", "false"} {
		s := startServer(t, "[locks]\ndirectories = "+directories+"\n[[lock]]\nmatch = '/locks/**'\n")
		dir := filepath.Dir(s.root)
		writeFile(t, filepath.Join(dir, "secret"), []byte("TOP SECRET"))
		s.write("dir/file", "harmless")
		s.write(".ftplockd-leftovers/x", "TOP SECRET")
		s.write(".ftplockd-leftover-1/x", "TOP SECRET")
		for link, to := range map[string]string{
			"out": "..", "absolute": dir, "deep": "dir", "dir/out": "../..", "chain": "out", "loop": "loop", "parent": "dir/../..", "toFile": "../secret",
		} {
			if err := os.Symlink(to, s.path(link)); err != nil {
				t.Fatal(err)
			}
		}
		c := s.session("other")
		c.Want(200, "TYPE I")
		forbidden := func() string {
			return s.snapshot(dir, "secret") + s.snapshot(dir, "ftplockd.toml") + s.snapshot(s.root, ".ftplockd-leftovers") +
				s.snapshot(s.root, ".ftplockd-leftover-1")
		}
		before, tries := forbidden(), 0
		names, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		check := func(what, got string) {
			tries++
			if strings.Contains(got, "TOP SECRET") || strings.Contains(got, "root:") || strings.Contains(got, dir) {
				t.Errorf("%s: %q", what, got)
			}
		}
		for _, p := range spellings() {
			for _, line := range []string{
				"RETR " + p, "LIST " + p, "NLST " + p, "MLSD " + p, "STOR " + p, "APPE " + p, "STOU " + p, "SIZE " + p, "MDTM " + p, "MLST " + p, "STAT " + p, "HASH " + p, "AVBL " + p, "XSHA256 " + p, "MFMT 20200101000000 " + p, "SITE CHMOD 777 " + p,
				"MKD " + p, "RMD " + p, "DELE " + p, "SITE LOCK INFO " + p, "SITE LOCKS " + p, "CWD " + p,
			} {
				check(line, c.ask(line))
			}
			check("RETR secret", c.ask("RETR secret"))
			c.Want(250, "CWD /") // the connection is there still
			if got := c.ask("RNFR " + p); strings.HasPrefix(got, "350") {
				check("RNTO", c.ask("RNTO /moved"))
			}
			c.ask("RNFR /dir/file")
			check("RNTO "+p, c.ask("RNTO "+p))
			s.write("dir/file", "harmless")
			if after := forbidden(); after != before {
				t.Fatalf("%s changed a forbidden file; before:\n%s\nafter:\n%s", p, before, after)
			}
		}
		if after, err := os.ReadDir(dir); err != nil || len(after) != len(names) {
			t.Errorf("the parent directory of the tree has %v now: %v", after, err)
		}
		t.Logf("%d tries", tries)
	}
}

// snapshot returns the names, modes and contents below a directory, each on a line.
func (s *server) snapshot(dir, name string) string {
	s.t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(filepath.Join(dir, name), func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		var content []byte
		if info.Mode().IsRegular() {
			content, err = os.ReadFile(path)
		}
		fmt.Fprintf(&all, "%s %v %q\n", path, info.Mode(), content)
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return all.String()
}

// ask sends a command and makes its transfer. It returns the downloaded bytes and the last reply, or "" if the connection has ended.
func (s *session) ask(line string) string {
	r, content, err := s.Execute(line, "overwritten")
	if err != nil {
		return ""
	}
	return content + r.String()
}
