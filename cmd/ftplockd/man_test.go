package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestManPages(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1000000000")
	dir := t.TempDir()
	root := newRootCommand()
	root.SetArgs([]string{"man", dir})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.[18]"))
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, p := range pages {
		data, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		if text += string(data); !strings.Contains(string(data), "Sep 2001") {
			t.Errorf("%s has not the date of the build:\n%.300s", filepath.Base(p), data)
		}
	}
	for _, c := range newRootCommand().Commands() {
		if has := strings.Contains(text, "ftplockd-"+c.Name()) || strings.Contains(text, "ftplockd\\-"+c.Name()); has == c.Hidden {
			t.Errorf("page of %s: %v", c.Name(), has)
		}
	}
}
