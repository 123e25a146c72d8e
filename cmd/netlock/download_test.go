package main

import (
	"os"
	"path/filepath"
	"testing"
)

func write(t testing.TB, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func content(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// fetch is a download of a text that is published or not.
func fetch(t *testing.T, to, text string, publish bool) {
	t.Helper()
	d, err := newDownload(to, "name")
	if err != nil {
		t.Fatal(err)
	}
	defer d.discard()
	if _, err := d.file.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := d.file.Sync(); err != nil {
		t.Fatal(err)
	}
	if publish {
		if err := d.publish(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDownloadsReplaceWholeFilesOnly(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "f"), filepath.Join(dir, "link")
	write(t, file, "old")
	if err := os.Chmod(file, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("f", link); err != nil {
		t.Fatal(err)
	}
	fetch(t, file, "half", false)
	if got := content(t, file); got != "old" {
		t.Errorf("a download that was not published: %q", got)
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 2 {
		t.Errorf("left over: %v, %v", all, err)
	}
	fetch(t, link, "new", true)
	if got := content(t, file); got != "new" {
		t.Errorf("through a link: %q", got)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("its mode: %v, %v", info.Mode(), err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link was replaced: %v, %v", info, err)
	}
	fetch(t, dir, "in", true)
	if got := content(t, filepath.Join(dir, "name")); got != "in" {
		t.Errorf("into a directory: %q", got)
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 3 {
		t.Errorf("left over: %v, %v", all, err)
	}
}

func TestDownloadsReplaceNoDevices(t *testing.T) {
	if d, err := newDownload(os.DevNull, "x"); err == nil {
		d.discard()
		t.Error("it would be replaced")
	}
}
