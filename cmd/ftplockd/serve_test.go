package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/config"
)

func TestLoadPutsFlagsOverTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f.toml")
	if err := os.WriteFile(file, []byte("listen = [\":1\"]\nroot = \"/file/root\"\nstate = \"/file/state\""), 0o600); err != nil {
		t.Fatal(err)
	}
	want := config.Default()
	want.HTTP.Listen = builtinHTTP
	if got, err := (serveOptions{}).load(); err != nil || !reflect.DeepEqual(got, want) {
		t.Error("without anything:", got, err)
	}
	want.HTTP.Listen = ""
	want.Listen, want.Root, want.State = []string{":1"}, "/file/root", "/file/state"
	if got, err := (serveOptions{ConfigFile: file}).load(); err != nil || !reflect.DeepEqual(got, want) {
		t.Error("a file:", got, err)
	}
	want.Listen, want.Root, want.State = []string{":2", ":3"}, "/flag/root", "/flag/state"
	all := serveOptions{ConfigFile: file, Listen: []string{":2", ":3"}, Root: "/flag/root", State: "/flag/state"}
	if got, err := all.load(); err != nil || !reflect.DeepEqual(got, want) {
		t.Error("a file and flags:", got, err)
	}
}

func TestLoadChecksWhatTheFlagsMakeOfIt(t *testing.T) {
	_, err := serveOptions{Root: "/srv", State: "/srv/state"}.load()
	var wrong config.Errors
	if !errors.As(err, &wrong) || len(wrong) != 1 || wrong[0].Key != "state" {
		t.Error(err)
	}
}

func TestExitStatus(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		began  bool
		status int
		says   string
	}{
		"nothing":                  {nil, true, 0, ""},
		"a failure":                {fs.ErrPermission, true, 1, "ftplockd: permission denied\n"},
		"a wrong configuration":    {config.Errors{{File: "f", Line: 2, Key: "k", Message: "m"}}, true, 2, "f:2: k: m\n"},
		"a file that is not there": {usageError{fs.ErrNotExist}, true, 2, "ftplockd: file does not exist\n"},
		"a wrong command line":     {errors.New("what?"), false, 2, "ftplockd: what?\nTry \"ftplockd --help\".\n"},
	} {
		cmd := newRootCommand()
		var stderr strings.Builder
		cmd.SetErr(&stderr)
		if got := report(cmd, c.err, c.began); got != c.status || stderr.String() != c.says {
			t.Errorf("%s: status %d, %q", name, got, stderr.String())
		}
	}
}
