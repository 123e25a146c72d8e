//go:build unix

package main

import (
	"maps"
	"os"
	"strings"
	"testing"
)

// TestNetlockScripts of package integration has downloads from a server.
func TestADownloadReplacesAFileOrChangesNothing(t *testing.T) {
	gone := func(d *download) { _ = os.Remove(d.file.Name()) }
	closed := func(d *download) { _ = d.file.Close() }
	for _, c := range []struct {
		local, name string
		meanwhile   func(*download)
		to, err     string // the file with the new content, or the error
	}{
		{local: "new", to: "new"},
		{local: "old", to: "old"},
		{local: "link", to: "old"},
		{local: ".", name: "new", to: "new"},
		{local: ".", name: "old", to: "old"},
		{local: ".", name: "link", to: "old"},
		{local: ".", name: "..", err: ". is a directory: give the name of the file in it, too"},
		{local: ".", name: "dir", err: "dir is not a regular file"},
		{local: "old/f", err: "stat old/f: not a directory"},
		{local: "none/f", err: ": no such file or directory"},
		{local: "nowhere", err: "lstat none: no such file or directory"},
		{local: ".", name: "nowhere", err: "lstat none: no such file or directory"},
		{local: "old", meanwhile: gone, err: "no such file or directory"},
		{local: "old", meanwhile: closed, err: "file already closed"},
	} {
		t.Chdir(t.TempDir())
		must := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		must(os.WriteFile("ordinary", []byte("new"), 0o666))
		must(os.WriteFile("old", nil, 0))
		must(os.Chmod("old", 0o606)) // a umask would clear bits
		must(os.Mkdir("dir", 0o700))
		must(os.Symlink("old", "link"))
		must(os.Symlink("none", "nowhere"))
		want := filesHere(t)
		switch c.to {
		case "old":
			want["old"] += "new"
		case "new":
			want["new"] = want["ordinary"]
		}
		d, err := newDownload(c.local, c.name)
		if err == nil {
			_, err = d.file.WriteString("new")
			must(err)
			if c.meanwhile != nil {
				c.meanwhile(d)
			}
			err = d.publish()
			d.discard()
		}
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%+v: %v", c, err)
		}
		if got := filesHere(t); !maps.Equal(got, want) {
			t.Errorf("%+v: %v, want %v", c, got, want)
		}
	}
}

// filesHere returns the mode and the content of each file in the working directory.
func filesHere(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = info.Mode().String() + " "
		if info.Mode().IsRegular() {
			text, err := os.ReadFile(e.Name())
			if err != nil {
				t.Fatal(err)
			}
			all[e.Name()] += string(text)
		}
	}
	return all
}
